//! The methods of a crate: which file an inherent method of a type stands in.
//!
//! A call `x.name()` does not tell the type of `x`. It is taken for a call of the method `name` if
//! exactly one inherent impl of the crate defines that name, no trait has it, and neither the
//! standard library nor another type that is often met has a method of that name.

use super::{Plan, TypeKey};
use crate::tidy::source::is_test_only;
use std::collections::{HashMap, HashSet};

/// Names of methods of the standard library that say nothing about the type of the receiver.
const COMMON: &str = "
    abs add all and any append args arg as_bytes as_mut as_path as_ref as_slice as_str borrow bytes
    capacity chain chars checked_add checked_sub chunks clear clone cloned close cmp collect
    components compare contains contains_key copied copy copy_from_slice count create current
    current_dir cycle data default deref drain drop elapsed end ends_with entry enumerate env eq err
    expect extend file_name fill filter find finish first flush fmt fold from generation get get_mut
    get_or_insert_with hash id index insert into into_inner into_iter is_empty is_err is_none is_ok
    is_some iter iter_mut join keys kind last len length line lines load lock map max message min
    name new next notify_all notify_one now ok open or output parent parse path peek pop position
    print push push_str range read read_at recv remove repeat replace reserve resize resume retain
    rev run seek send set skip sort spawn split split_at split_off start starts_with status step
    store sub sum swap sync take then to_bytes to_owned to_string to_vec trim truncate try_lock
    unlock unwrap update values wait wait_timeout with write write_all write_at zip
";

/// The inherent methods of a crate.
#[derive(Default)]
pub(super) struct Methods {
    /// The file of each method, by its type and its name.
    of_types: HashMap<(TypeKey, String), usize>,
    /// The methods whose name tells the type: the type's name, and the file.
    by_name: HashMap<String, (String, usize)>,
}

impl Methods {
    /// The methods of the crate of `plan`.
    pub(super) fn of(plan: &Plan<'_>) -> Self {
        let mut methods = Self::default();
        let mut ambiguous: HashSet<String> = COMMON.split_whitespace().map(str::to_owned).collect();
        plan.each_item(&mut |file, module, item| match item {
            syn::Item::Trait(item) => ambiguous.extend(trait_methods(item)),
            syn::Item::Impl(block) if block.trait_.is_some() => ambiguous.extend(functions(block)),
            syn::Item::Impl(block) => {
                let Some(key) = plan.type_key(module, &block.self_ty) else { return };
                for name in functions(block) {
                    methods.of_types.insert((key.clone(), name.clone()), file);
                    let method = (key.1.clone(), file);
                    let before = methods.by_name.insert(name.clone(), method.clone());
                    if before.is_some_and(|before| before != method) {
                        ambiguous.insert(name);
                    }
                }
            }
            _ => {}
        });
        methods.by_name.retain(|name, _| !ambiguous.contains(name));
        methods
    }

    /// The file of the method `name` of the type `key`.
    pub(super) fn of_type(&self, key: &TypeKey, name: &str) -> Option<usize> {
        self.of_types.get(&(key.clone(), name.to_owned())).copied()
    }

    /// The type's name and the file of the one method that `name` can mean.
    pub(super) fn by_name(&self, name: &str) -> Option<(&str, usize)> {
        self.by_name.get(name).map(|(owner, file)| (owner.as_str(), *file))
    }
}

fn trait_methods(item: &syn::ItemTrait) -> Vec<String> {
    let methods = item.items.iter().filter_map(|item| match item {
        syn::TraitItem::Fn(function) => Some(function.sig.ident.to_string()),
        _ => None,
    });
    methods.collect()
}

fn functions(block: &syn::ItemImpl) -> Vec<String> {
    let functions = block.items.iter().filter_map(|item| match item {
        syn::ImplItem::Fn(function) if !is_test_only(&function.attrs) => {
            Some(function.sig.ident.to_string())
        }
        _ => None,
    });
    functions.collect()
}

//! Arrows: what the files of a crate take from one another, by imports and by calls of methods.

use super::tokens::{Seen, seen};
use super::{Plan, Target, TypeKey, attributes, below, names, use_leaves};
use crate::tidy::source::is_test_only;
use std::collections::HashSet;
use syn::spanned::Spanned;
use syn::visit::Visit;

/// One thing that one file takes from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arrow {
    /// The file that takes, by its place on the plan.
    pub(crate) from: usize,
    /// The file that defines the thing.
    pub(crate) to: usize,
    /// The thing: `pool::Pool`, or `Pool::commit()` for a call.
    pub(crate) name: String,
    /// The first line that takes it.
    pub(crate) line: usize,
    /// Whether it is a call of an inherent method.
    pub(crate) is_call: bool,
}

/// The arrows between the files of `plan`, each thing once a file.
pub(crate) fn arrows(plan: &Plan<'_>) -> Vec<Arrow> {
    let mut arrows = Vec::new();
    for from in 0..plan.files.len() {
        let module = plan.files[from].module.clone();
        let mut file = FileArrows { plan, from, module, owner: None, found: Vec::new() };
        file.visit_file(&plan.files[from].source.syntax);
        let mut seen = HashSet::new();
        file.found.retain(|arrow| seen.insert((arrow.to, arrow.name.clone(), arrow.is_call)));
        arrows.extend(file.found);
    }
    arrows
}

/// The arrows of one file.
struct FileArrows<'a> {
    plan: &'a Plan<'a>,
    from: usize,
    /// The module that is looked at.
    module: Vec<String>,
    /// The type whose impl is looked at.
    owner: Option<TypeKey>,
    found: Vec<Arrow>,
}

impl FileArrows<'_> {
    fn add(&mut self, to: usize, name: String, line: usize, is_call: bool) {
        if to != self.from {
            self.found.push(Arrow { from: self.from, to, name, line, is_call });
        }
    }

    fn add_target(&mut self, target: Target, line: usize) {
        let Some(to) = self.plan.file_of(&target.module) else { return };
        let mut path = target.module;
        path.extend(target.item);
        self.add(to, path.join("::"), line, false);
    }

    fn judge_path(&mut self, path: &[String], line: usize) {
        if let [owner, function] = path
            && owner == "Self"
        {
            self.judge_own_call(function, line);
        }
        let Some(target) = self.plan.resolve(&self.module, path) else { return };
        if let (Some(item), [function]) = (&target.item, &target.tail[..]) {
            self.judge_call_of((target.module.clone(), item.clone()), function, line);
        }
        self.add_target(target, line);
    }

    fn judge_call_of(&mut self, owner: TypeKey, method: &str, line: usize) -> bool {
        let to = self.plan.methods.of_type(&owner, method);
        if let Some(to) = to {
            self.add(to, format!("{}::{method}()", owner.1), line, true);
        }
        to.is_some()
    }

    fn judge_own_call(&mut self, method: &str, line: usize) {
        let owner = self.owner.clone();
        if !owner.is_some_and(|owner| self.judge_call_of(owner, method, line)) {
            self.judge_call(method, line);
        }
    }

    fn judge_call(&mut self, method: &str, line: usize) {
        if let Some((owner, to)) = self.plan.methods.by_name(method) {
            self.add(to, format!("{owner}::{method}()"), line, true);
        }
    }

    fn judge_tokens(&mut self, tokens: &proc_macro2::TokenStream) {
        for seen in seen(tokens.clone()) {
            match seen {
                Seen::Path(path, line) => self.judge_path(&path, line),
                Seen::Call { name, of_self: true, line } => self.judge_own_call(&name, line),
                Seen::Call { name, of_self: false, line } => self.judge_call(&name, line),
            }
        }
    }

    /// Whether a `use` item only hands out what stands in the module or below it.
    fn is_re_export(&self, item: &syn::ItemUse, target: &Target) -> bool {
        let is_handed_out = !matches!(item.vis, syn::Visibility::Inherited);
        is_handed_out && target.module.starts_with(&self.module)
    }
}

impl<'ast> Visit<'ast> for FileArrows<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_test_only(attributes(item)) {
            syn::visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let inner = below(&self.module, &item.ident);
        let outer = std::mem::replace(&mut self.module, inner);
        syn::visit::visit_item_mod(self, item);
        self.module = outer;
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        for leaf in use_leaves(&item.tree) {
            match self.plan.resolve(&self.module, &leaf.path) {
                Some(target) if !self.is_re_export(item, &target) => {
                    self.add_target(target, leaf.line);
                }
                _ => {}
            }
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let inner = self.plan.type_key(&self.module, &item.self_ty);
        let outer = std::mem::replace(&mut self.owner, inner);
        syn::visit::visit_item_impl(self, item);
        self.owner = outer;
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_test_only(&item.attrs) {
            syn::visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.judge_path(&names(path), path.span().start().line);
        syn::visit::visit_path(self, path);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let method = call.method.to_string();
        let line = call.method.span().start().line;
        match &*call.receiver {
            syn::Expr::Path(path) if path.path.is_ident("self") => {
                self.judge_own_call(&method, line);
            }
            _ => self.judge_call(&method, line),
        }
        syn::visit::visit_expr_method_call(self, call);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.judge_path(&names(&call.path), call.span().start().line);
        self.judge_tokens(&call.tokens);
    }

    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        if let syn::Meta::List(list) = &attribute.meta {
            self.judge_tokens(&list.tokens);
        }
    }

    fn visit_visibility(&mut self, _visibility: &'ast syn::Visibility) {}
}

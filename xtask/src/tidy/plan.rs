//! The plan of a crate: its modules, the files that hold them, and the item that a path means.
//!
//! A path is followed through re-exports and imports to the module that defines the item, so an
//! arrow ends at the thing itself and never at a facade. Test code is not on the plan.

mod arrows;
mod methods;
mod tokens;

pub(crate) use arrows::{Arrow, arrows};

use super::source::{Source, is_test_only};
use methods::Methods;
use std::collections::HashMap;

/// How many re-exports a path may lead through; a ring of imports ends here.
const RE_EXPORTS_MAX: usize = 16;

/// A crate as the rules of layering see it.
pub(crate) struct Plan<'s> {
    /// The crate's folder.
    pub(crate) name: String,
    /// The files that are not test code.
    pub(crate) files: Vec<File<'s>>,
    /// The modules by their path from the root of the crate.
    modules: HashMap<Vec<String>, Module>,
    methods: Methods,
}

/// A file of a crate.
pub(crate) struct File<'s> {
    /// The text.
    pub(crate) source: &'s Source,
    /// The path of its module; empty for the root of the crate.
    pub(crate) module: Vec<String>,
}

/// A module: the file that holds it, and its names.
struct Module {
    file: usize,
    names: HashMap<String, Name>,
}

/// What a name of a module stands for.
enum Name {
    /// An item that the module defines.
    Item,
    /// An import or a re-export of this path.
    Import(Vec<String>),
}

/// What a path means.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    /// The module that defines the item, or the module that is meant.
    module: Vec<String>,
    /// The item; none if the module itself is meant.
    item: Option<String>,
    /// What follows the item: a variant, a function of a type.
    tail: Vec<String>,
}

/// A type of the crate: the module that defines it, and its name.
pub(crate) type TypeKey = (Vec<String>, String);

/// An `impl T` of a type of the crate.
pub(crate) struct InherentImpl {
    /// The file that it stands in.
    pub(crate) file: usize,
    /// Its line.
    pub(crate) line: usize,
    /// The module that it stands in.
    pub(crate) module: Vec<String>,
    /// The type.
    pub(crate) owner: TypeKey,
}

impl<'s> Plan<'s> {
    /// The plan of the crate `name`.
    pub(crate) fn new(name: &str, sources: &'s [Source]) -> Self {
        let mut plan = Self {
            name: name.to_owned(),
            files: files(name, sources),
            modules: HashMap::new(),
            methods: Methods::default(),
        };
        for index in 0..plan.files.len() {
            let (source, module) = (plan.files[index].source, plan.files[index].module.clone());
            plan.add_items(index, &module, &source.syntax.items);
        }
        plan.methods = Methods::of(&plan);
        plan
    }

    fn add_items(&mut self, file: usize, at: &[String], items: &[syn::Item]) {
        let module = Module { file, names: HashMap::new() };
        self.modules.entry(at.to_vec()).or_insert(module);
        for item in items.iter().filter(|item| !is_test_only(attributes(item))) {
            match item {
                syn::Item::Mod(inner) => {
                    if let Some((_, items)) = &inner.content {
                        self.add_items(file, &below(at, &inner.ident), items);
                    }
                }
                syn::Item::Use(import) => {
                    for leaf in use_leaves(&import.tree) {
                        self.add_name(at, leaf.name, Name::Import(leaf.path));
                    }
                }
                _ => {
                    let name = defined(item).map(syn::Ident::to_string);
                    self.add_name(at, name, Name::Item);
                }
            }
        }
    }

    fn add_name(&mut self, at: &[String], name: Option<String>, meaning: Name) {
        if let (Some(name), Some(module)) = (name, self.modules.get_mut(at)) {
            module.names.entry(name).or_insert(meaning);
        }
    }

    /// The file that holds a module.
    pub(crate) fn file_of(&self, module: &[String]) -> Option<usize> {
        self.modules.get(module).map(|module| module.file)
    }

    /// What `path`, written in the module `from`, means; none if it is not of this crate.
    fn resolve(&self, from: &[String], path: &[String]) -> Option<Target> {
        self.follow(from, path, 0)
    }

    fn follow(&self, from: &[String], path: &[String], depth: usize) -> Option<Target> {
        let (mut at, mut rest) = self.start(from, path)?;
        while let Some(first) = rest.first() {
            let child = below(&at, first);
            if !self.modules.contains_key(&child) {
                break;
            }
            (at, rest) = (child, &rest[1..]);
        }
        let Some(name) = rest.first() else {
            return Some(Target { module: at, item: None, tail: Vec::new() });
        };
        match self.modules.get(&at)?.names.get(name) {
            Some(Name::Import(_)) if depth == RE_EXPORTS_MAX => None,
            Some(Name::Import(path)) => {
                let path = [path, &rest[1..]].concat();
                self.follow(&at, &path, depth + 1)
            }
            _ => Some(Target { module: at, item: Some(name.clone()), tail: rest[1..].to_vec() }),
        }
    }

    /// The module from which a path is followed, and what is left of the path.
    fn start<'p>(
        &self,
        from: &[String],
        path: &'p [String],
    ) -> Option<(Vec<String>, &'p [String])> {
        let first = path.first()?;
        let mut at = from.to_vec();
        let mut rest = path;
        match first.as_str() {
            "crate" => return Some((Vec::new(), &rest[1..])),
            "self" => return Some((at, &rest[1..])),
            "super" => {
                while rest.first().is_some_and(|first| first == "super") {
                    at.pop()?;
                    rest = &rest[1..];
                }
            }
            _ => {
                let names = &self.modules.get(from)?.names;
                let is_module = path.len() > 1 && self.modules.contains_key(&below(from, first));
                if !is_module && !names.contains_key(first) {
                    return None;
                }
            }
        }
        Some((at, rest))
    }

    /// The type of this crate that `syntax` names, if it names one.
    fn type_key(&self, from: &[String], syntax: &syn::Type) -> Option<TypeKey> {
        let syn::Type::Path(path) = syntax else { return None };
        let target = self.resolve(from, &names(&path.path))?;
        let item = target.item.filter(|_| target.tail.is_empty())?;
        let is_here = self.modules.get(&target.module)?.names.contains_key(&item);
        is_here.then_some((target.module, item))
    }

    /// The inherent impls of the types of the crate.
    pub(crate) fn inherent_impls(&self) -> Vec<InherentImpl> {
        let mut found = Vec::new();
        self.each_item(&mut |file, module, item| {
            let syn::Item::Impl(block) = item else { return };
            if block.trait_.is_some() {
                return;
            }
            if let Some(key) = self.type_key(module, &block.self_ty) {
                let line = block.impl_token.span.start().line;
                found.push(InherentImpl { file, line, module: module.to_vec(), owner: key });
            }
        });
        found
    }

    /// Calls `seen` with each item that is not test code, its file and its module.
    fn each_item<'p>(&'p self, seen: &mut impl FnMut(usize, &[String], &'p syn::Item)) {
        for (index, file) in self.files.iter().enumerate() {
            each_item(index, &file.module, &file.source.syntax.items, seen);
        }
    }
}

fn each_item<'p>(
    file: usize,
    at: &[String],
    items: &'p [syn::Item],
    seen: &mut impl FnMut(usize, &[String], &'p syn::Item),
) {
    for item in items.iter().filter(|item| !is_test_only(attributes(item))) {
        match item {
            syn::Item::Mod(inner) => {
                if let Some((_, items)) = &inner.content {
                    each_item(file, &below(at, &inner.ident), items, seen);
                }
            }
            _ => seen(file, at, item),
        }
    }
}

/// The files of the crate `name` that are not test code.
fn files<'s>(name: &str, sources: &'s [Source]) -> Vec<File<'s>> {
    let of_crate = sources.iter().filter(|source| source.crate_name() == name && !source.is_test());
    let files: Vec<File> = of_crate
        .filter_map(|source| Some(File { source, module: module_path(&source.path)? }))
        .collect();
    let tests: Vec<Vec<String>> = files.iter().flat_map(test_modules).collect();
    let is_test = |file: &File| tests.iter().any(|test| file.module.starts_with(test));
    files.into_iter().filter(|file| !is_test(file)).collect()
}

/// The path of the module that the file at `path` holds; none outside `src`.
fn module_path(path: &str) -> Option<Vec<String>> {
    let (_, inner) = path.split_once("/src/")?;
    let inner = inner.strip_suffix(".rs")?;
    let mut names: Vec<String> = inner.split('/').map(str::to_owned).collect();
    let is_root = ["lib", "main"].contains(&inner);
    if is_root || names.last().is_some_and(|last| last == "mod") {
        names.pop();
    }
    Some(names)
}

/// The modules that `file` declares for tests only.
fn test_modules(file: &File) -> Vec<Vec<String>> {
    let items = file.source.syntax.items.iter();
    let modules = items.filter_map(|item| match item {
        syn::Item::Mod(module) if is_test_only(&module.attrs) => Some(&module.ident),
        _ => None,
    });
    modules.map(|name| below(&file.module, name)).collect()
}

/// The path of `name` in the module `at`.
fn below(at: &[String], name: &impl ToString) -> Vec<String> {
    let mut path = at.to_vec();
    path.push(name.to_string());
    path
}

/// The names of a path.
fn names(path: &syn::Path) -> Vec<String> {
    path.segments.iter().map(|part| part.ident.to_string()).collect()
}

/// A leaf of a `use` item.
struct UseLeaf {
    path: Vec<String>,
    /// The name that it brings; none for a glob and for `_`.
    name: Option<String>,
    line: usize,
}

/// The leaves of a `use` item.
fn use_leaves(tree: &syn::UseTree) -> Vec<UseLeaf> {
    let mut leaves = Vec::new();
    add_leaves(tree, &[], &mut leaves);
    leaves
}

fn add_leaves(tree: &syn::UseTree, at: &[String], leaves: &mut Vec<UseLeaf>) {
    match tree {
        syn::UseTree::Path(part) => add_leaves(&part.tree, &below(at, &part.ident), leaves),
        syn::UseTree::Group(group) => {
            group.items.iter().for_each(|item| add_leaves(item, at, leaves));
        }
        syn::UseTree::Name(leaf) => leaves.push(leaf_of(at, &leaf.ident, None)),
        syn::UseTree::Rename(leaf) => leaves.push(leaf_of(at, &leaf.ident, Some(&leaf.rename))),
        syn::UseTree::Glob(glob) => {
            let line = glob.star_token.spans[0].start().line;
            leaves.push(UseLeaf { path: at.to_vec(), name: None, line });
        }
    }
}

fn leaf_of(at: &[String], name: &syn::Ident, rename: Option<&syn::Ident>) -> UseLeaf {
    let line = name.span().start().line;
    let path = if name == "self" { at.to_vec() } else { below(at, name) };
    let name = rename.map(ToString::to_string).or_else(|| path.last().cloned());
    UseLeaf { path, name: name.filter(|name| name != "_"), line }
}

/// The name that an item defines in its module.
fn defined(item: &syn::Item) -> Option<&syn::Ident> {
    match item {
        syn::Item::Const(item) => Some(&item.ident),
        syn::Item::Enum(item) => Some(&item.ident),
        syn::Item::Fn(item) => Some(&item.sig.ident),
        syn::Item::Macro(item) => item.ident.as_ref(),
        syn::Item::Static(item) => Some(&item.ident),
        syn::Item::Struct(item) => Some(&item.ident),
        syn::Item::Trait(item) => Some(&item.ident),
        syn::Item::Type(item) => Some(&item.ident),
        syn::Item::Union(item) => Some(&item.ident),
        _ => None,
    }
}

/// The attributes of an item.
fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

#[cfg(test)]
mod tests;

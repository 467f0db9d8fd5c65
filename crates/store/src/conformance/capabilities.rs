//! What some views can do beside the map and its blocks: each test runs where the view has the
//! capability, and looks at what holds without it where that is an answer too.

use super::{MakeStore, block_at, bytes, content, fresh, put, root, section, value};
use crate::{Batch, Error, Item, Space, Store, View};
use std::sync::Arc;

/// Which of its capabilities a view hands out.
fn names_of(view: &dyn View) -> [bool; 8] {
    let all = view.capabilities();
    [
        all.space.is_some(),
        all.admission.is_some(),
        all.placement.is_some(),
        all.ownership.is_some(),
        all.adoption.is_some(),
        all.trimming.is_some(),
        all.label.is_some(),
        all.halting.is_some(),
    ]
}

/// A view goes on having what it has, and another view of the dataset has the same.
pub fn capabilities_stay(make: MakeStore<'_>) {
    let store = make();
    let view = root(&store);
    let before = names_of(&*view);
    put(&*view, section(2, 0), fresh(b"", bytes(1, 5000)));
    view.sync().expect("the view syncs");
    assert_eq!(names_of(&*view), before);
    assert_eq!(names_of(&*root(&store)), before);
}

/// What is promised is not free, and what is free can be written.
pub fn space_is_counted_and_kept_back(make: MakeStore<'_>) {
    const PROMISED_BYTES: u64 = 1 << 20;
    let store = make();
    let view = root(&store);
    let Some(counted) = view.capabilities().space else {
        assert_eq!(view.space(), Space::UNCOUNTED);
        return;
    };
    let before = counted.space();
    assert!(before.free_bytes <= before.total_bytes);
    view.promise(PROMISED_BYTES);
    if view.capabilities().admission.is_none() {
        // Nothing is kept back, and others may write to the medium meanwhile.
        let now = root(&store).space();
        assert!(now.free_bytes <= now.total_bytes);
        return;
    }
    let kept_back = before.free_bytes - root(&store).space().free_bytes;
    assert!(kept_back >= PROMISED_BYTES, "another view sees {kept_back} bytes less");
    view.promise(0);
    assert_eq!(view.space(), before, "the promise is given back");
    view.promise(PROMISED_BYTES);
    drop(view);
    assert_eq!(root(&store).space(), before, "it goes with its view");
}

/// A dry run says what would be refused, and applies nothing; a commit is a sync.
pub fn dry_runs_apply_nothing(make: MakeStore<'_>) {
    let store = make();
    let view = root(&store);
    let mut batch = Batch::new();
    batch.put(section(2, 0), Item::plain(&b"new"[..]));
    view.dry_run(batch).expect("it would be taken");
    assert_eq!(value(&*view, section(2, 0)), None);
    put(&*view, section(2, 0), fresh(b"", bytes(1, 9000)));
    view.commit().expect("the view commits");
    assert_eq!(content(&*view, section(2, 0)), bytes(1, 9000));
}

/// A block has a place and a size, and is read from there; only its own items hold it.
pub fn blocks_have_places(make: MakeStore<'_>) {
    let store = make();
    let view = root(&store);
    put(&*view, section(2, 0), fresh(b"", bytes(2, 70_000)));
    view.sync().expect("the view syncs");
    view.commit().expect("the view commits");
    let block = block_at(&*view, 2);
    let anew = view.read_block_anew(&block).expect("it is read anew");
    assert!(anew[..] == bytes(2, 70_000));
    assert!(view.stored_bytes(&block) > 0);
    let place = view.place_of(&block);
    assert_eq!(place.stored_bytes, view.stored_bytes(&block));
    assert!(view.capabilities().placement.is_some() || place.may_be_shared, "it cannot be known");
    assert_eq!(place.address.is_some(), place.pieces > 0);
    let held = |keys: &[_]| view.is_held_only_by(&block, keys).expect("it is looked up");
    assert!(!held(&[]), "its item holds it");
    let is_known = held(&[section(2, 0)]);
    store.snapshot(&crate::DatasetName::root(), "s").expect("a snapshot is made");
    assert!(!held(&[section(2, 0)]), "the snapshot holds it too; before: {is_known}");
}

/// A label is what was set last, and too long a one is refused.
pub fn labels_are_set(make: MakeStore<'_>) {
    let store = make();
    let view = root(&store);
    let Some(labelled) = view.capabilities().label else { return };
    labelled.set_label("a label", 0).expect("it is set");
    assert_eq!(labelled.label(), "a label");
    let refused = labelled.set_label(&"x".repeat(1 << 16), 0);
    assert!(matches!(refused, Err(Error::Invalid(_))));
    assert_eq!(labelled.label(), "a label");
}

/// What is in use is whole after a trim.
pub fn trims_spare_what_is_in_use(make: MakeStore<'_>) {
    let store = make();
    let view = root(&store);
    put(&*view, section(2, 0), fresh(b"", bytes(2, 70_000)));
    put(&*view, section(3, 0), fresh(b"", bytes(3, 70_000)));
    view.sync().expect("the view syncs");
    let mut batch = Batch::new();
    batch.remove(section(3, 0));
    view.apply(batch).expect("the batch applies");
    let Some(trimming) = view.capabilities().trimming else { return };
    trimming.trim(0, u64::MAX, 1).expect("the devices are trimmed");
    assert_eq!(content(&*view, section(2, 0)), bytes(2, 70_000));
}

/// A store that was halted is read, but takes nothing and says that nothing is durable.
pub fn halted_stores_only_read(make: MakeStore<'_>) {
    let store: Arc<dyn Store> = make();
    let view = root(&store);
    put(&*view, section(2, 0), fresh(b"", bytes(2, 700)));
    let Some(halting) = view.capabilities().halting else { return };
    halting.halt();
    assert!(!view.writable());
    let mut batch = Batch::new();
    batch.remove(section(2, 0));
    assert!(matches!(view.apply(batch), Err(Error::ReadOnly(_))));
    assert!(matches!(view.sync(), Err(Error::Io(_))));
    assert_eq!(content(&*view, section(2, 0)), bytes(2, 700));
}

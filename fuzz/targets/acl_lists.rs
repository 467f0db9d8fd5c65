//! Access control lists as programs hand them over: refused, or a list that comes back as it was,
//! goes with any mode, and answers any question.

#![no_main]

use libfuzzer_sys::fuzz_target;
use marram_posix::{Nfs4List, Nfs4Rights, Nfs4Who, PosixList};

fuzz_target!(|bytes: &[u8]| {
    let [low, high, rest @ ..] = bytes else { return };
    let mode = (u32::from(*low) | u32::from(*high) << 8) & 0o777;
    if let Ok(list) = PosixList::decode(rest) {
        let mut again = PosixList::decode(&list.encode()).expect("it was a list");
        assert_eq!(again, list);
        again.set_mode(mode);
        assert_eq!(again.mode(), mode);
        assert_eq!(list.clone().limited_to(mode).mode(), list.mode() & mode);
    }
    if let Ok(list) = Nfs4List::decode(rest) {
        assert_eq!(Nfs4List::decode(&list.encode()).as_ref(), Ok(&list));
        let is_directory = high & 0x80 != 0;
        let changed = list.clone().with_mode(mode, is_directory);
        assert_eq!(changed.mode(), mode);
        assert_eq!(changed.clone().with_mode(mode, is_directory), changed);
        if let Some(made) = list.inherited(mode, 0o022, is_directory) {
            assert_eq!(made.mode() & !mode, 0, "more than was asked for");
        }
        let about = |who| matches!(who, Nfs4Who::Everyone | Nfs4Who::NamedUser(0));
        list.evaluate(Nfs4Rights(mode), about);
    }
});

//! A thread that breaks the order panics with both names, and only in a build that checks.

use marram_locks::{Condvar, Mutex, Rank, RwLock};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

const FIRST: Rank = Rank { order: 10, name: "the first" };
const SECOND: Rank = Rank { order: 20, name: "the second" };

/// The words of the panic that `action` ends with; nothing if it does not.
fn panic_of(action: impl FnOnce()) -> Option<String> {
    let ended = catch_unwind(AssertUnwindSafe(action)).err()?;
    Some(ended.downcast_ref::<String>().cloned().unwrap_or_default())
}

#[test]
fn the_right_order_is_taken_again_and_again() {
    let (first, second) = (Mutex::new(FIRST, 1), RwLock::new(SECOND, 2));
    for _ in 0..3 {
        let mut held = first.lock();
        assert_eq!(*second.read() + *held, 3);
        *second.write() = 2;
        *held = 1;
    }
    // Given back out of turn.
    let (one, two) = (first.lock(), second.read());
    drop(one);
    drop(two);
    drop(first.lock());
}

#[test]
#[cfg(debug_assertions)]
fn the_wrong_order_is_told_with_both_names() {
    let (first, second) = (Mutex::new(FIRST, ()), RwLock::new(SECOND, ()));
    let words = panic_of(|| {
        let _later = second.read();
        let _earlier = first.lock();
    });
    let words = words.expect("it is refused");
    assert!(words.contains("the first") && words.contains("the second"), "{words}");
    assert_eq!(panic_of(|| drop(first.lock())), None, "what the panic held was given back");
}

#[test]
#[cfg(debug_assertions)]
fn a_lock_that_is_held_is_not_taken_again() {
    let lock = RwLock::new(FIRST, ());
    assert!(panic_of(|| drop((lock.read(), lock.read()))).is_some());
}

#[test]
#[cfg(debug_assertions)]
fn locks_of_one_rank_are_taken_by_number() {
    let locks = [0, 1].map(|number| RwLock::numbered(FIRST, number, ()));
    assert_eq!(panic_of(|| drop((locks[0].write(), locks[1].write()))), None);
    assert!(panic_of(|| drop((locks[1].write(), locks[0].write()))).is_some());
}

#[test]
fn what_another_thread_holds_does_not_matter() {
    let (first, second) = (Mutex::new(FIRST, ()), Mutex::new(SECOND, ()));
    let _held = second.lock();
    std::thread::scope(|scope| {
        scope.spawn(|| drop(first.lock()));
    });
}

#[test]
fn who_waits_gets_the_lock_back() {
    let (ready, changed) = (Mutex::new(FIRST, false), Condvar::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            *ready.lock() = true;
            changed.notify_all();
        });
        let mut held = ready.lock();
        while !*held {
            changed.wait(&mut held);
        }
        assert!(!changed.wait_for(&mut held, Duration::from_millis(1)) || *held);
    });
}

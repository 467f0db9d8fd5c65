/*
 * Transactions in mounted Marram file systems, as ordinary files.
 *
 *     marram_tx *tx;
 *     if (marram_tx_begin("/srv/data", &tx) != MARRAM_OK)
 *         errx(1, "%s", marram_message());
 *     renameat(marram_tx_fd(tx), "next", marram_tx_fd(tx), "current");
 *     if (marram_tx_commit(tx) != MARRAM_OK)
 *         errx(1, "%s", marram_message());
 *
 * What is done below the descriptor is there at once or not at all. docs/transactions-library.md
 * has the rules. Every call may be made by any thread; one transaction by one thread at a time.
 */
#ifndef MARRAM_H
#define MARRAM_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A transaction that is open. It is aborted when the process ends, however it does. */
typedef struct marram_tx marram_tx;

/* How a call ended. With all but MARRAM_UNKNOWN nothing of the transaction is there. */
typedef enum marram_status {
    MARRAM_OK = 0,
    /* Others have changed what the transaction has read or written: see marram_conflict(). */
    MARRAM_REFUSED = 1,
    /* The daemon went away during the commit, or of two pools one has not told its decision:
     * `marram tx show` tells whether it was done. */
    MARRAM_UNKNOWN = 2,
    /* This process still has files of the transaction mapped. */
    MARRAM_MAPPED = 3,
    /* No transaction can begin on this directory. */
    MARRAM_UNSUITABLE = 4,
    /* The daemon refuses what was asked, or failed at it. */
    MARRAM_DAEMON = 5,
    /* A system call failed, or the work of marram_retry() gave up. */
    MARRAM_FAILED = 6
} marram_status;

/* Begins a transaction on a directory, given by its path or by a descriptor of any kind. */
marram_status marram_tx_begin(const char *directory, marram_tx **tx);
marram_status marram_tx_begin_at(int directory, marram_tx **tx);

/*
 * Begins one transaction on several directories, of one dataset or several, in one pool or two. It
 * sees those of one pool as they were at one moment, and its commit is one moment there; in two
 * pools all of it is in both, or nothing of it in any.
 */
marram_status marram_tx_begin_several(const char *const *directories, size_t count, marram_tx **tx);

/*
 * Begins a transaction inside of `outer`, on the same directories. It commits into `outer`; nothing
 * is durable before that commits, which fails as long as any is open inside of it. None begins
 * inside of one over two pools.
 */
marram_status marram_tx_begin_inside(const marram_tx *outer, marram_tx **tx);

/*
 * The directory in the view of the transaction: an O_PATH descriptor, for openat() and all other
 * calls that take the descriptor of a directory. To list it, open "." in it. It stays the
 * library's, which closes it at the end; others opened below it then answer ESTALE.
 */
int marram_tx_fd(const marram_tx *tx);

/* The same of one on several directories, by its number from 0; -1 behind the last. */
int marram_tx_fd_at(const marram_tx *tx, size_t number);

/* The id: 32 digits of base 16. It lives as long as the transaction. */
const char *marram_tx_id(const marram_tx *tx);

/* Commits, and frees `tx` in any case. Durable when it returns MARRAM_OK. */
marram_status marram_tx_commit(marram_tx *tx);

/* Aborts, and frees `tx`. NULL is fine. A child of fork() only lets go of its copy. */
void marram_tx_abort(marram_tx *tx);

/*
 * Has `work` done in a transaction and commits. If that is refused, the work is done again in a
 * new one after a pause, `retries` times at most. If `work` returns other than 0 it is aborted.
 * `work` neither commits nor aborts.
 */
marram_status marram_retry(const char *directory, unsigned retries,
                           int (*work)(marram_tx *tx, void *data), void *data);

/* The same on several directories: see marram_tx_begin_several(). */
marram_status marram_retry_several(const char *const *directories, size_t count, unsigned retries,
                                   int (*work)(marram_tx *tx, void *data), void *data);

/* What the last call of this thread that did not end with MARRAM_OK has to say. */
const char *marram_message(void);

/* The paths from the root of the dataset that its commit was refused for; NULL behind the last. */
const char *marram_conflict(size_t number);

#ifdef __cplusplus
}
#endif

#endif

//! Operations that users have asked for, as rows and entries have them.

use super::malformed;
use marram_format::operation::OperationRecord;
use marram_store::Result;

/// Reads an operation. Its bytes are those of a pool's log of operations.
///
/// # Errors
/// It is none.
pub fn decode_operation(bytes: &[u8]) -> Result<OperationRecord> {
    OperationRecord::decode(bytes).map_err(|error| malformed("an operation", error.to_string()))
}

//! Properties of a dataset, as records of datasets and streams have them: by ascending names, each
//! two lengths of 2 bytes, the name, and the value.

use crate::FormatError;
use crate::reader::Reader;

/// Reads so many properties of `what`.
///
/// # Errors
/// They end too early, are no UTF-8, or are not in order.
pub(crate) fn take_all(
    from: &mut Reader<'_>,
    what: &'static str,
    count: u16,
) -> Result<Vec<(String, String)>, FormatError> {
    let mut properties: Vec<(String, String)> = Vec::new();
    for index in 0..usize::from(count) {
        let offset = from.at();
        let name_len = from.u16("length of a property's name")?;
        let value_len = from.u16("length of a property's value")?;
        let name = from.text("name of a property", usize::from(name_len))?;
        let value = from.text("value of a property", usize::from(value_len))?;
        if properties.last().is_some_and(|last| last.0 >= name) {
            return Err(FormatError::Order { what, field: "property", index, offset });
        }
        properties.push((name, value));
    }
    Ok(properties)
}

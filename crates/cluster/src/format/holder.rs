//! Which database holds a place of blocks: what the place says, and what the database knows.

use super::Fields;
use super::fields::put_count;
use super::object::digits;
use marram_store::Result;

/// A random number that a database has put into the place.
pub type Token = [u8; 16];
/// Tokens that a row has at most.
pub const TOKENS_MAX: usize = 8;
/// What a place says in its first two lines.
const HEAD: &str = "holder of the blocks of a Marram cluster home\nversion 1\n";

/// The row: the tokens that its database has put into the place of late, the newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HolderRow(pub Vec<Token>);

impl HolderRow {
    /// The row with a new token before the others. The one that is `there` in the place stays.
    pub fn with(&self, new: Token, there: Option<Token>) -> HolderRow {
        let mut tokens = vec![new];
        for token in there.into_iter().chain(self.0.iter().copied()) {
            if !tokens.contains(&token) && tokens.len() < TOKENS_MAX {
                tokens.push(token);
            }
        }
        HolderRow(tokens)
    }

    /// The row's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_count(&mut out, self.0.len());
        self.0.iter().for_each(|token| out.extend_from_slice(token));
        out
    }

    /// Reads a row's value.
    ///
    /// # Errors
    /// It is no such value.
    pub fn decode(bytes: &[u8]) -> Result<HolderRow> {
        let mut fields = Fields::new("the tokens of the holder", bytes);
        let count = fields.count(size_of::<Token>())?;
        if count > TOKENS_MAX {
            return fields.refuse("they are too many");
        }
        let tokens = (0..count).map(|_| fields.array()).collect::<Result<_>>()?;
        fields.end()?;
        Ok(HolderRow(tokens))
    }
}

/// What the place says of its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The token that was put last.
    pub token: Token,
    /// Tells the database from each copy of it; zeros where nothing does.
    pub database: [u8; 16],
}

impl Holder {
    /// Its text.
    pub fn encode(&self) -> String {
        let hexadecimal = |bytes: &[u8; 16]| -> String {
            bytes.iter().map(|byte| format!("{byte:02x}")).collect()
        };
        let (token, database) = (hexadecimal(&self.token), hexadecimal(&self.database));
        format!("{HEAD}token {token}\ndatabase {database}\n")
    }

    /// Reads a text; none if it is no such text.
    pub fn decode(bytes: &[u8]) -> Option<Holder> {
        let rest = std::str::from_utf8(bytes).ok()?.strip_prefix(HEAD)?;
        let (token, database) = rest.strip_suffix('\n')?.split_once('\n')?;
        let token = digits(token.strip_prefix("token ")?)?;
        Some(Holder { token, database: digits(database.strip_prefix("database ")?)? })
    }
}

//! A connection to a server: the protocol of PostgreSQL, version 3, as far as rows need it.
//!
//! A **pipeline** is sent as a whole and answered as a whole: one round trip, and for the server
//! one transaction, of which nothing is done if any step fails.

use super::Access;
use super::failure::{Failure, Outcome};
use super::socket;
use bytes::{Bytes, BytesMut};
use fallible_iterator::FallibleIterator;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use postgres_protocol::message::backend::{DataRowBody, Header, Message};
use postgres_protocol::message::frontend;
use postgres_protocol::types::array_to_sql;
use postgres_protocol::{IsNull, Oid};
use std::io::{self, Read, Write};

/// Types of parameters, by the numbers that all servers give them.
pub(super) mod types {
    use postgres_protocol::Oid;

    pub(in super::super) const BYTES: Oid = 17;
    pub(in super::super) const NUMBER: Oid = 20;
    pub(in super::super) const TEXT: Oid = 25;
    pub(in super::super) const BYTES_LIST: Oid = 1001;
    pub(in super::super) const TEXT_LIST: Oid = 1009;
}

/// Longest message that is taken from a server, in bytes: an entry, and room for more.
const MESSAGE_BYTES_MAX: i32 = 512 << 20;
/// Bytes that are read from a socket at once.
const READ_BYTES: usize = 64 << 10;

/// A value that is handed to a statement.
#[derive(Clone)]
pub(super) enum Value<'v> {
    Bytes(&'v [u8]),
    Number(i64),
    /// Values of a list of bytes or of texts.
    List(Vec<&'v [u8]>, Oid),
}

/// A statement and its values. It is prepared once on each connection, under its own text.
#[derive(Clone)]
pub(super) struct Step<'v> {
    pub(super) text: String,
    pub(super) types: &'static [Oid],
    pub(super) values: Vec<Value<'v>>,
}

impl Step<'_> {
    /// A statement without values.
    pub(super) fn plain(text: impl Into<String>) -> Step<'static> {
        Step { text: text.into(), types: &[], values: Vec::new() }
    }
}

/// What a step has come to.
#[derive(Default)]
pub(super) struct Answer {
    /// The columns of each row; an empty one where there is none.
    pub(super) rows: Vec<Vec<Bytes>>,
    /// Rows that were changed, or found.
    pub(super) count: u64,
}

impl Answer {
    /// A column of the first row, as text.
    pub(super) fn text(&self, column: usize) -> String {
        let found = self.rows.first().and_then(|row| row.get(column));
        found.map_or_else(String::new, |it| String::from_utf8_lossy(it).into_owned())
    }
}

/// An open connection.
pub(super) struct Connection {
    stream: Box<dyn socket::Stream>,
    incoming: BytesMut,
    /// The statements that are prepared, and their names.
    prepared: Vec<(String, String)>,
    /// Statements that were named up to now.
    named: u64,
    /// What the server lists this connection under.
    pub(super) name: String,
}

impl Connection {
    /// Connects and proves its user.
    pub(super) fn open(access: &Access, name: String) -> Outcome<Connection> {
        let stream = socket::connect(&access.place, access.patience)?;
        let incoming = BytesMut::with_capacity(READ_BYTES);
        let mut connection = Connection { stream, incoming, prepared: Vec::new(), named: 0, name };
        connection.start(access)?;
        Ok(connection)
    }

    fn start(&mut self, access: &Access) -> Outcome<()> {
        let (place, name) = (&access.place, self.name.clone());
        let words = [
            ("user", place.user.as_str()),
            ("database", place.database.as_str()),
            ("client_encoding", "UTF8"),
            ("application_name", name.as_str()),
        ];
        self.send(|out| frontend::startup_message(words, out))?;
        self.log_in(access)?;
        while !matches!(self.receive()?, Message::ReadyForQuery(_)) {}
        self.stream.wait_for(access.patience)?;
        Ok(())
    }

    fn log_in(&mut self, access: &Access) -> Outcome<()> {
        loop {
            match self.receive()? {
                Message::AuthenticationOk => return Ok(()),
                Message::AuthenticationMd5Password(asked) => {
                    let password = password(access)?;
                    let hash = md5_hash(access.place.user.as_bytes(), &password, asked.salt());
                    self.send(|out| frontend::password_message(hash.as_bytes(), out))?;
                }
                Message::AuthenticationSasl(_) => self.prove(&password(access)?)?,
                _ => {
                    let text = "the server asks for a way to log in that Marram has not: let it \
                                ask for a password (scram-sha-256), or take `peer` on its socket";
                    return Err(Failure::Unfit(text.to_owned()));
                }
            }
        }
    }

    /// SCRAM: both sides prove that they know the password, which is not sent.
    fn prove(&mut self, password: &[u8]) -> Outcome<()> {
        let mut scram = ScramSha256::new(password, ChannelBinding::unsupported());
        self.send(|out| frontend::sasl_initial_response(SCRAM_SHA_256, scram.message(), out))?;
        let Message::AuthenticationSaslContinue(asked) = self.receive()? else {
            return Err(strange());
        };
        scram.update(asked.data()).map_err(|_| unproved())?;
        self.send(|out| frontend::sasl_response(scram.message(), out))?;
        let Message::AuthenticationSaslFinal(proof) = self.receive()? else {
            return Err(strange());
        };
        scram.finish(proof.data()).map_err(|_| unproved())
    }

    fn send(&mut self, fill: impl FnOnce(&mut BytesMut) -> io::Result<()>) -> Outcome<()> {
        let mut outgoing = BytesMut::new();
        fill(&mut outgoing)?;
        self.stream.write_all(&outgoing)?;
        Ok(self.stream.flush()?)
    }

    /// The next message that answers something; a refusal is a failure.
    fn receive(&mut self) -> Outcome<Message> {
        loop {
            match self.next()? {
                Message::NoticeResponse(_)
                | Message::ParameterStatus(_)
                | Message::NotificationResponse(_)
                | Message::BackendKeyData(_) => {}
                Message::ErrorResponse(refusal) => return Err(Failure::refused(&refusal)),
                message => return Ok(message),
            }
        }
    }

    fn next(&mut self) -> Outcome<Message> {
        let mut chunk = [0; READ_BYTES];
        loop {
            let begun = Header::parse(&self.incoming)?;
            if begun.is_some_and(|header| header.len() > MESSAGE_BYTES_MAX) {
                return Err(strange());
            }
            if let Some(message) = Message::parse(&mut self.incoming)? {
                return Ok(message);
            }
            let count = self.stream.read(&mut chunk)?;
            if count == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            self.incoming.extend_from_slice(&chunk[..count]);
        }
    }

    /// Runs the steps in one transaction, in one round trip.
    ///
    /// The answers of all steps but the last are to be short: the server must not wait for their
    /// being read while it is still sent to.
    ///
    /// After a guard that did not hold it can be used further.
    pub(super) fn run(&mut self, steps: &[Step<'_>]) -> Outcome<Vec<Answer>> {
        let known = self.prepared.len();
        let mut outgoing = BytesMut::new();
        for step in steps {
            self.put(step, &mut outgoing)?;
        }
        frontend::sync(&mut outgoing);
        self.stream.write_all(&outgoing)?;
        self.stream.flush()?;
        drop(outgoing);
        let answers = self.answers(steps.len());
        if answers.as_ref().is_err_and(Failure::is_of_guard) {
            // The server has left out what came behind it, statements to prepare too.
            self.prepared.truncate(known);
            while !matches!(self.receive()?, Message::ReadyForQuery(_)) {}
        }
        answers
    }

    fn put(&mut self, step: &Step<'_>, out: &mut BytesMut) -> Outcome<()> {
        let known = self.prepared.iter().find(|(text, _)| *text == step.text);
        let name = known.map_or_else(|| format!("s{}", self.named), |(_, name)| name.clone());
        if known.is_none() {
            frontend::parse(&name, &step.text, step.types.iter().copied(), out)?;
            self.prepared.push((step.text.clone(), name.clone()));
            self.named += 1;
        }
        let serialize = |value: &Value<'_>, out: &mut BytesMut| serialize(value, out);
        frontend::bind("", &name, [1], &step.values, serialize, [1], out)
            .map_err(|_| Failure::Unfit("a value is too long for the database".to_owned()))?;
        Ok(frontend::execute("", 0, out)?)
    }

    fn answers(&mut self, count: usize) -> Outcome<Vec<Answer>> {
        let (mut answers, mut current) = (Vec::with_capacity(count), Answer::default());
        loop {
            match self.receive()? {
                Message::ParseComplete | Message::BindComplete => {}
                Message::DataRow(row) => current.rows.push(columns(&row)?),
                Message::CommandComplete(done) => {
                    current.count = counted(done.tag()?);
                    answers.push(std::mem::take(&mut current));
                }
                Message::ReadyForQuery(_) if answers.len() == count => return Ok(answers),
                _ => return Err(strange()),
            }
        }
    }
}

fn password(access: &Access) -> Outcome<Vec<u8>> {
    access.password().map_err(|error| Failure::Unfit(error.to_string()))
}

fn strange() -> Failure {
    Failure::Unfit("the server says what no PostgreSQL server says".to_owned())
}

fn unproved() -> Failure {
    Failure::Unfit("the server does not know the password that it asks for".to_owned())
}

fn columns(row: &DataRowBody) -> Outcome<Vec<Bytes>> {
    let mut ranges = row.ranges();
    let mut columns = Vec::new();
    // Copied: what is kept of a row must not hold all that was read with it.
    while let Some(range) = ranges.next()? {
        columns.push(range.map_or_else(Bytes::new, |at| Bytes::copy_from_slice(&row.buffer()[at])));
    }
    Ok(columns)
}

/// Rows that a tag counts, as `INSERT 0 3` and `SELECT 2` do.
fn counted(tag: &str) -> u64 {
    tag.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0)
}

type Serialized = std::result::Result<IsNull, Box<dyn std::error::Error + Sync + Send>>;

fn serialize(value: &Value<'_>, out: &mut BytesMut) -> Serialized {
    match value {
        Value::Bytes(bytes) => out.extend_from_slice(bytes),
        Value::Number(number) => out.extend_from_slice(&number.to_be_bytes()),
        Value::List(values, kind) => {
            let len = i32::try_from(values.len())?;
            let dimension = postgres_protocol::types::ArrayDimension { len, lower_bound: 1 };
            let one = |value: &&[u8], out: &mut BytesMut| -> Serialized {
                out.extend_from_slice(value);
                Ok(IsNull::No)
            };
            array_to_sql([dimension], *kind, values, one, out)?;
        }
    }
    Ok(IsNull::No)
}

//! Which method of the adapter serves which request.

use super::reenacted::is_stand_in;
use super::{Adapter, Answer, Outcome};
use crate::errno::Errno;
use crate::protocol::{Encoder, Operation, Request};
use bytes::Bytes;
use marram_vfs::Ino;

impl Adapter {
    /// Serves one request; `out` takes the payload and is empty after an error. `memory` is what
    /// the request lies in, if that may be kept.
    pub(crate) fn serve(
        &self,
        request: &Request<'_>,
        memory: Option<&Bytes>,
        out: &mut Vec<u8>,
    ) -> Answer {
        out.clear();
        if self.serve_forgets(request) {
            return Answer::Silence;
        }
        if let Operation::SetLock { lock, waits } = &request.operation {
            return self.serve_lock(&request.header, (lock, *waits), out);
        }
        let outcome = self.dispatch(request, memory, out);
        Answer::Reply(self.conclude(&request.header, outcome, out))
    }

    /// Requests that have no reply. INTERRUPT is one, and ends the wait for a lock, which stands
    /// elsewhere. Nothing else is interrupted: callers that have been killed are found without it.
    fn serve_forgets(&self, request: &Request<'_>) -> bool {
        match &request.operation {
            Operation::Forget { count } => {
                self.take_back(Ino(request.header.node), *count);
            }
            Operation::BatchForget(forgets) => {
                for (node, count) in forgets.iter() {
                    self.take_back(Ino(node), count);
                }
            }
            Operation::Interrupt { .. } | Operation::NotifyReply => (),
            _ => return false,
        }
        true
    }

    fn take_back(&self, ino: Ino, count: u64) {
        if !is_stand_in(ino) {
            self.file_system.forget(ino, count);
        }
    }

    fn dispatch(
        &self,
        request: &Request<'_>,
        memory: Option<&Bytes>,
        out: &mut Vec<u8>,
    ) -> Outcome {
        let header = &request.header;
        let ino = Ino(header.node);
        let out = &mut Encoder(out);
        if let Some(outcome) = self.reenact(request, out) {
            return outcome;
        }
        match &request.operation {
            Operation::Lookup { name } => self.lookup(header, name, out),
            Operation::GetAttributes { open } => self.attributes(header, *open, out),
            Operation::ExtendedAttributes { open } => self.extended_attributes(header, *open, out),
            Operation::SetAttributes(set) => self.set_attributes(header, set, out),
            Operation::Space => self.space(out),
            Operation::ReadLink => self.read_link(ino, out),
            Operation::Symlink { name, target } => self.symlink(header, name, target, out),
            Operation::MakeNode(node) => self.make_node(header, node, out),
            Operation::MakeDirectory(node) => self.make_directory(header, node, out),
            Operation::CreateAnonymous(create) => self.create_anonymous(header, create, out),
            Operation::Link { node, new_name } => self.link(header, Ino(*node), new_name, out),
            Operation::Unlink { name } => self.unlink(header, name),
            Operation::RemoveDirectory { name } => self.remove_directory(header, name),
            Operation::Rename(rename) => self.rename(header, rename),
            Operation::Read(transfer) => self.read(ino, *transfer, out),
            Operation::Write(write) => self.write(header, write, memory, out),
            Operation::Allocate { handle, offset, len, mode } => {
                self.allocate(header, *handle, (*offset, *len), *mode)
            }
            Operation::Seek { offset, whence } => self.seek(ino, *offset, *whence, out),
            Operation::CopyRange(copy) => self.copy_range(header, copy, out),
            Operation::ReadDirectory(transfer) => self.read_directory(ino, *transfer, false, out),
            Operation::ReadDirectoryPlus(transfer) => {
                self.read_directory(ino, *transfer, true, out)
            }
            Operation::GetXattr { name, size } => self.xattr(header, name, *size, out),
            Operation::SetXattr { name, value, flags, clear_setgid } => {
                self.set_xattr(header, name, value, *flags, *clear_setgid)
            }
            Operation::ListXattrs { size } => self.list_xattrs(header, *size, out),
            Operation::RemoveXattr { name } => self.remove_xattr(header, name),
            Operation::Ioctl(ioctl) => self.ioctl(header, ioctl, out),
            Operation::Open { caller_flags } => self.open(header, *caller_flags, out),
            Operation::OpenDirectory => self.open_directory(header, out),
            Operation::Create(create) => self.create(header, create, out),
            Operation::Access { mask } => self.access(header, *mask),
            Operation::GetLock(lock) => self.get_lock(header, lock, out),
            Operation::Flush { owner } => self.flush(ino, *owner),
            Operation::Release { handle } => {
                self.release(*handle);
                Ok(())
            }
            Operation::ReleaseDirectory => Ok(()),
            Operation::Init(_) => Err(Errno::PROTOCOL.into()),
            _ => Err(Errno::NO_OPERATION.into()),
        }
    }
}

//! NVMe commands as the kernel passes them on: by ioctl, which the calling thread waits for, and
//! through io_uring.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use io_uring::{cqueue, opcode as uring_opcode, squeue, types};
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl, opcode};

use crate::linux::failure::Failure;
use crate::linux::ring::{Operation, Wire};
use crate::linux::status::Status;

/// `struct nvme_passthru_cmd` of <linux/nvme_ioctl.h>; `struct nvme_uring_cmd` is the same, but for the
/// last field.
#[derive(Clone, Copy, Debug, Default, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct NvmeCommand {
    pub opcode: u8,
    pub flags: u8,
    pub reserved: u16,
    pub nsid: u32,
    pub cdw2: u32,
    pub cdw3: u32,
    pub metadata: u64,
    pub addr: u64,
    pub metadata_len: u32,
    pub data_len: u32,
    pub cdw10: u32,
    pub cdw11: u32,
    pub cdw12: u32,
    pub cdw13: u32,
    pub cdw14: u32,
    pub cdw15: u32,
    pub timeout_ms: u32,
    pub result: u32,
}

const _: () = assert!(size_of::<NvmeCommand>() == 72);

/// Opcodes of commands.
pub mod op {
    pub const FLUSH: u8 = 0x00;
    pub const WRITE: u8 = 0x01;
    pub const READ: u8 = 0x02;
    pub const IDENTIFY: u8 = 0x06;
    pub const ZONE_SEND: u8 = 0x79;
    pub const ZONE_RECEIVE: u8 = 0x7a;
    pub const ZONE_APPEND: u8 = 0x7d;
}

const ADMIN: Opcode = opcode::read_write::<NvmeCommand>(b'N', 0x41);
const IO: Opcode = opcode::read_write::<NvmeCommand>(b'N', 0x43);
const NAMESPACE_ID: Opcode = opcode::none(b'N', 0x40);
const URING_IO: u32 = opcode::read_write::<NvmeCommand>(b'N', 0x80) as u32;
const URING_IO_VECTORED: u32 = opcode::read_write::<NvmeCommand>(b'N', 0x81) as u32;

impl NvmeCommand {
    /// A command with a logical block address.
    pub fn at(opcode: u8, nsid: u32, lba: u64) -> NvmeCommand {
        NvmeCommand {
            opcode,
            nsid,
            cdw10: lba as u32,
            cdw11: (lba >> 32) as u32,
            ..NvmeCommand::default()
        }
    }
}

/// A call whose answer is what the kernel returns.
struct Call {
    opcode: Opcode,
    command: NvmeCommand,
}

// SAFETY: the opcodes above take a `struct nvme_passthru_cmd`, which the kernel reads and of which it
// writes the result, or nothing; what they return is a number.
#[allow(unsafe_code)]
unsafe impl Ioctl for Call {
    type Output = c_int;
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        self.opcode
    }

    fn as_ptr(&mut self) -> *mut c_void {
        (&raw mut self.command).cast()
    }

    unsafe fn output_from_ptr(output: IoctlOutput, _: *mut c_void) -> rustix::io::Result<c_int> {
        Ok(output)
    }
}

/// Which queue of the drive a command goes to.
#[derive(Clone, Copy, Debug)]
pub enum Queue {
    Admin,
    Io,
}

/// Runs a command to its end. It reads or fills `data`, as its opcode says.
pub fn run(
    file: &File,
    queue: Queue,
    mut command: NvmeCommand,
    data: &mut [u8],
) -> Result<(), Failure> {
    if !data.is_empty() {
        command.addr = data.as_mut_ptr() as u64;
        command.data_len = u32::try_from(data.len()).map_err(io::Error::other)?;
    }
    let opcode = match queue {
        Queue::Admin => ADMIN,
        Queue::Io => IO,
    };
    // SAFETY: the command names `data`, which is borrowed until the drive is done with it.
    #[allow(unsafe_code)]
    let answer = unsafe { ioctl(file.as_fd(), Call { opcode, command }) };
    match answer? {
        0 => Ok(()),
        status => Err(Failure::Nvme(Status::of_completion(status as u16))),
    }
}

/// The number of the namespace.
pub fn namespace_id(file: &File) -> io::Result<u32> {
    let call = Call {
        opcode: NAMESPACE_ID,
        command: NvmeCommand::default(),
    };
    // SAFETY: it takes no argument.
    #[allow(unsafe_code)]
    let answer = unsafe { ioctl(file.as_fd(), call) };
    Ok(answer? as u32)
}

/// Transfers as commands to a namespace.
pub struct NvmeWire {
    pub file: Arc<File>,
    pub nsid: u32,
    /// Bytes of a logical block are two to the power of this.
    pub block_shift: u32,
}

impl NvmeWire {
    fn transfer(&self, opcode: u8, lba: u64, bytes: usize) -> NvmeCommand {
        NvmeCommand {
            // Counted from zero.
            cdw12: ((bytes >> self.block_shift) as u32).saturating_sub(1),
            ..NvmeCommand::at(opcode, self.nsid, lba)
        }
    }

    fn gathered(&self, opcode: u8, lba: u64, slices: &[libc::iovec]) -> squeue::Entry128 {
        let bytes = slices.iter().map(|slice| slice.iov_len).sum();
        let command = self.transfer(opcode, lba, bytes);
        match slices {
            [one] => self.entry_of(
                URING_IO,
                NvmeCommand {
                    addr: one.iov_base as u64,
                    data_len: one.iov_len as u32,
                    ..command
                },
            ),
            _ => self.entry_of(
                URING_IO_VECTORED,
                NvmeCommand {
                    addr: slices.as_ptr() as u64,
                    data_len: slices.len() as u32,
                    ..command
                },
            ),
        }
    }

    fn entry_of(&self, call: u32, command: NvmeCommand) -> squeue::Entry128 {
        let mut bytes = [0; 80];
        for (to, from) in bytes.iter_mut().zip(bytemuck::bytes_of(&command)) {
            *to = *from;
        }
        let fd = types::Fd(self.file.as_raw_fd());
        uring_opcode::UringCmd80::new(fd, call).cmd(bytes).build()
    }
}

impl Wire for NvmeWire {
    type Entry = squeue::Entry128;
    type Completion = cqueue::Entry32;
    /// A logical block address.
    type Place = u64;

    fn entry(&self, operation: Operation<'_, u64>) -> squeue::Entry128 {
        match operation {
            Operation::Read(lba, memory, bytes) => self.entry_of(
                URING_IO,
                NvmeCommand {
                    addr: memory as u64,
                    data_len: bytes as u32,
                    ..self.transfer(op::READ, *lba, bytes)
                },
            ),
            Operation::Write(lba, slices) => self.gathered(op::WRITE, *lba, slices),
            Operation::Append(lba, slices) => self.gathered(op::ZONE_APPEND, *lba, slices),
            Operation::Flush(_) => self.entry_of(
                URING_IO,
                NvmeCommand {
                    opcode: op::FLUSH,
                    nsid: self.nsid,
                    ..NvmeCommand::default()
                },
            ),
        }
    }

    fn ended(&self, completion: &cqueue::Entry32, _: usize) -> Result<u64, Failure> {
        match completion.result() {
            0 => Ok(completion.big_cqe()[0]),
            // Of the kernel's own.
            errno @ ..0 => Err(io::Error::from_raw_os_error(-errno).into()),
            status => Err(Failure::Nvme(Status::of_completion(status as u16))),
        }
    }
}

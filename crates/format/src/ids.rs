//! Identifiers and addresses. Newtypes, so that the compiler catches a swap.

use std::fmt;

/// Bytes in a block, the unit of every address and every device command.
pub const BLOCK_SIZE: usize = 4096;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

id!(
    /// A device of the volume; 0 is the first.
    DeviceId(u8)
);
id!(
    /// A zone of a device, counted from 0.
    ZoneId(u32)
);
id!(
    /// A logical metadata page: the Metadata Allocation Table maps it to an address.
    PageId(u64)
);
id!(
    /// Log sequence number: one per redo record, counted from 1 over the volume's life.
    Lsn(u64)
);
id!(
    /// An inode number. Never used twice in the life of a volume.
    Ino(u64)
);
id!(
    /// A version of a subvolume, see [`crate::version`]. 0 is the first.
    VersionId(u32)
);
id!(
    /// A subvolume: 0 is the main one, the others are snapshots.
    SubvolumeId(u16)
);

impl SubvolumeId {
    /// The one that is mounted.
    pub const MAIN: SubvolumeId = SubvolumeId(0);
    /// No subvolume has this number.
    pub const NONE: SubvolumeId = SubvolumeId(u16::MAX);
}

impl Ino {
    /// Bits of an inode's number. Those above are its subvolume's, wherever an inode is named from outside of the tree; in keys of the
    /// tree they are 0, since an inode has its number in all subvolumes.
    pub const BITS: u32 = 48;
    /// No inode has a number from here on.
    pub const END: u64 = 1 << Ino::BITS;

    /// The subvolume in which it is looked at.
    #[must_use]
    pub fn subvolume(self) -> SubvolumeId {
        SubvolumeId((self.0 >> Ino::BITS) as u16)
    }

    /// Its number alone, as in keys of the tree.
    #[must_use]
    pub fn plain(self) -> Ino {
        Ino(self.0 & (Ino::END - 1))
    }

    /// The inode with the same number in this subvolume.
    #[must_use]
    pub fn of(self, subvolume: SubvolumeId) -> Ino {
        Ino(self.plain().0 | u64::from(subvolume.0) << Ino::BITS)
    }
}

impl Lsn {
    /// The next sequence number. The largest has none: it is its own.
    #[must_use]
    pub fn next(self) -> Lsn {
        Lsn(self.0.saturating_add(1))
    }
}

/// Where a block is: device (8 bits), zone (28 bits), block within the zone (28 bits).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Addr(u64);

impl Addr {
    const FIELD_BITS: u32 = 28;
    const FIELD_MASK: u64 = (1 << Self::FIELD_BITS) - 1;
    /// Block 0 of zone 0 of device 0, which is a zone header: no reference ever means it.
    pub const ZERO: Addr = Addr(0);
    /// One more than the largest block number and the largest zone number an address can hold.
    pub const FIELD_LIMIT: u64 = 1 << Self::FIELD_BITS;

    /// Joins the three parts. Parts beyond their field are cut off; geometry is checked
    /// against [`Addr::FIELD_LIMIT`] when a volume is made and opened.
    #[must_use]
    pub fn new(device: DeviceId, zone: ZoneId, block: u32) -> Addr {
        Addr(
            (u64::from(device.0) << (2 * Self::FIELD_BITS))
                | ((u64::from(zone.0) & Self::FIELD_MASK) << Self::FIELD_BITS)
                | (u64::from(block) & Self::FIELD_MASK),
        )
    }

    /// The address as stored.
    #[must_use]
    pub fn to_raw(self) -> u64 {
        self.0
    }

    /// An address as read; any 64 bits are an address, if not always one that exists.
    #[must_use]
    pub fn from_raw(raw: u64) -> Addr {
        Addr(raw)
    }

    /// The device.
    #[must_use]
    pub fn device(self) -> DeviceId {
        DeviceId((self.0 >> (2 * Self::FIELD_BITS)) as u8)
    }

    /// The zone on its device.
    #[must_use]
    pub fn zone(self) -> ZoneId {
        ZoneId(((self.0 >> Self::FIELD_BITS) & Self::FIELD_MASK) as u32)
    }

    /// The block in its zone.
    #[must_use]
    pub fn block(self) -> u32 {
        (self.0 & Self::FIELD_MASK) as u32
    }

    /// The address `blocks` further on in the same zone.
    #[must_use]
    pub fn offset(self, blocks: u32) -> Addr {
        Addr::new(
            self.device(),
            self.zone(),
            self.block().wrapping_add(blocks),
        )
    }
}

impl fmt::Debug for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.device(), self.zone(), self.block())
    }
}

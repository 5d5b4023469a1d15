//! Decisions taken from the bytes of an input. An input that is used up answers zeros, so every
//! prefix of an input is an input.

/// What is left of an input.
pub struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    pub fn new(bytes: &'a [u8]) -> Input<'a> {
        Input { rest: bytes }
    }

    /// At most so many bytes.
    pub fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (head, tail) = self.rest.split_at(len.min(self.rest.len()));
        self.rest = tail;
        head
    }

    /// All that is left.
    pub fn rest(self) -> &'a [u8] {
        self.rest
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let bytes = self.bytes(N);
        array[..bytes.len()].copy_from_slice(bytes);
        array
    }

    pub fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.array())
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// One in two.
    pub fn flag(&mut self) -> bool {
        self.u8() & 1 == 1
    }

    /// One in `n`.
    pub fn rarely(&mut self, n: u8) -> bool {
        self.u8() % n == n - 1
    }

    /// A number below `count`; 0 if `count` is.
    pub fn below(&mut self, count: usize) -> usize {
        match count {
            0 | 1 => 0,
            2..=256 => usize::from(self.u8()) % count,
            257..=65_536 => usize::from(self.u16()) % count,
            _ => self.u32() as usize % count,
        }
    }

    /// One of `items`, which is not empty.
    pub fn pick<'b, T>(&mut self, items: &'b [T]) -> &'b T {
        &items[self.below(items.len())]
    }

    /// A number of the kinds that arithmetic fails on.
    pub fn number(&mut self) -> u64 {
        match self.u8() % 9 {
            0 => 0,
            1 => self.u8().into(),
            2 => self.u16().into(),
            3 => self.u32().into(),
            4 => self.u64(),
            5 => u64::MAX - u64::from(self.u8() % 4),
            6 => 1 << (self.u8() % 64),
            7 => (1u64 << (self.u8() % 64)).wrapping_sub(u64::from(self.u8() % 4)),
            _ => u64::from(u32::MAX) - u64::from(self.u8() % 4),
        }
    }

    /// `usual`, and now and then any other number.
    pub fn near(&mut self, usual: u64) -> u64 {
        match self.u8() % 8 {
            0 => self.number(),
            1 => usual.wrapping_add(self.u8().into()),
            2 => usual.wrapping_sub(self.u8().into()),
            _ => usual,
        }
    }
}

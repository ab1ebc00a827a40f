//! The caller's memory, where its structures are.

/// A call's structure: words at an address of the caller's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words(*mut u32);

impl Words {
    /// The structure at this address.
    ///
    /// # Safety
    ///
    /// There are as many words as are read and written.
    pub(crate) unsafe fn at(address: u64) -> Words {
        Words(std::ptr::with_exposed_provenance_mut(address as usize))
    }

    /// A word.
    pub(crate) fn get(self, number: usize) -> u32 {
        // SAFETY: `at` was promised that it is there.
        unsafe { self.0.wrapping_add(number).read() }
    }

    /// Two words, the lower half first.
    pub(crate) fn get_wide(self, number: usize) -> u64 {
        u64::from(self.get(number)) | u64::from(self.get(number + 1)) << 32
    }

    /// Writes a word.
    pub(crate) fn set(self, number: usize, value: u32) {
        // SAFETY: as in `get`.
        unsafe { self.0.wrapping_add(number).write(value) };
    }

    /// Writes two words, the lower half first.
    pub(crate) fn set_wide(self, number: usize, value: u64) {
        self.set(number, value as u32);
        self.set(number + 1, (value >> 32) as u32);
    }

    /// Writes bytes from a word on.
    pub(crate) fn set_bytes(self, number: usize, bytes: &[u8]) {
        for (word, four) in (number..).zip(bytes.as_chunks::<4>().0) {
            self.set(word, u32::from_le_bytes(*four));
        }
    }
}

//! The least of the ustar format that an image needs: files, directories, symbolic links, owned by
//! root, with a fixed time so that equal content gives equal bytes. Names up to 99 bytes.

const BLOCK: usize = 512;

/// A tar that is being written in memory.
#[derive(Debug, Default)]
pub(super) struct Tar(Vec<u8>);

impl Tar {
    pub(super) fn file(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.header(path, mode, content.len(), b'0', "");
        self.0.extend_from_slice(content);
        self.pad();
    }

    pub(super) fn directory(&mut self, path: &str) {
        self.header(&format!("{path}/"), 0o755, 0, b'5', "");
    }

    pub(super) fn symlink(&mut self, path: &str, target: &str) {
        self.header(path, 0o777, 0, b'2', target);
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.0.extend_from_slice(&[0; 2 * BLOCK]);
        self.0
    }

    fn pad(&mut self) {
        let full = self.0.len().next_multiple_of(BLOCK);
        self.0.resize(full, 0);
    }

    fn header(&mut self, path: &str, mode: u32, size: usize, kind: u8, link: &str) {
        let mut block = [0_u8; BLOCK];
        put(&mut block, 0, path.as_bytes());
        put(&mut block, 100, format!("{mode:07o}").as_bytes());
        put(&mut block, 108, b"0000000");
        put(&mut block, 116, b"0000000");
        put(&mut block, 124, format!("{size:011o}").as_bytes());
        put(&mut block, 136, b"00000000001");
        block[156] = kind;
        put(&mut block, 157, link.as_bytes());
        put(&mut block, 257, b"ustar\x0000");
        // The checksum counts its own field as eight spaces.
        put(&mut block, 148, b"        ");
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        put(&mut block, 148, format!("{sum:06o}\0 ").as_bytes());
        self.0.extend_from_slice(&block);
    }
}

fn put(block: &mut [u8; BLOCK], at: usize, bytes: &[u8]) {
    block[at..at + bytes.len()].copy_from_slice(bytes);
}

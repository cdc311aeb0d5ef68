// SPDX-License-Identifier: Apache-2.0
// refused: none
// What the others differ from, so that they are refused for what they say.
pub fn example(pool: splitfs::Pool, file: std::fs::File) -> std::io::Result<u8> {
    let peek = splitfs::peek(&file, 0, 16)?;
    let first = peek[0];
    peek.unpeek()?;
    let mut buffer = pool.alloc(0, 4096)?;
    buffer[0] = first;
    let patch = buffer.patch(&file, 0, 4096).map_err(|e| e.error)?;
    Ok(patch.buffer[0])
}

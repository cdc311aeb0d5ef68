// SPDX-License-Identifier: Apache-2.0
// refused: E0505
pub fn example(file: std::fs::File) -> std::io::Result<u8> {
    let peek = splitfs::peek(&file, 0, 16)?;
    let header = &peek[..4];
    peek.unpeek()?;
    Ok(header[0])
}

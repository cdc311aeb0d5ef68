// SPDX-License-Identifier: Apache-2.0
// refused: E0597
pub fn example(file: std::fs::File) -> std::io::Result<Vec<u8>> {
    let header;
    {
        let peek = splitfs::peek(&file, 0, 16)?;
        header = &peek[..4];
    }
    Ok(header.to_vec())
}

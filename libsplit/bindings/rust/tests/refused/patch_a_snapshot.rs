// SPDX-License-Identifier: Apache-2.0
// refused: E0599
pub fn example(file: std::fs::File) -> std::io::Result<()> {
    let peek = splitfs::peek(&file, 0, 4096)?;
    peek.patch(&file, 0, 4096);
    Ok(())
}

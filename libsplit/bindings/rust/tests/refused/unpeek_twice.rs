// SPDX-License-Identifier: Apache-2.0
// refused: E0382
pub fn example(file: std::fs::File) -> std::io::Result<()> {
    let peek = splitfs::peek(&file, 0, 16)?;
    peek.unpeek()?;
    peek.unpeek()
}

// SPDX-License-Identifier: Apache-2.0
// refused: E0594
pub fn example(file: std::fs::File) -> std::io::Result<()> {
    let mut peek = splitfs::peek(&file, 0, 16)?;
    peek[0] = 1;
    peek.unpeek()
}

// SPDX-License-Identifier: Apache-2.0
// refused: E0594
pub fn example(pool: &splitfs::Pool, file: std::fs::File) -> std::io::Result<()> {
    let mut patch = pool.alloc(0, 4096)?.patch(&file, 0, 4096).map_err(|e| e.error)?;
    patch.buffer[0] = 1;
    Ok(())
}

// SPDX-License-Identifier: Apache-2.0
// refused: E0505
pub fn example(pool: &splitfs::Pool, file: std::fs::File) -> std::io::Result<()> {
    let mut buffer = pool.alloc(0, 4096)?;
    let part = &mut buffer[..16];
    let patch = buffer.patch(&file, 0, 4096);
    part[0] = 1;
    drop(patch);
    Ok(())
}

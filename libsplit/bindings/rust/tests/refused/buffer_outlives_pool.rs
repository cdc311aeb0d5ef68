// SPDX-License-Identifier: Apache-2.0
// refused: E0505
pub fn example(pool: splitfs::Pool) -> std::io::Result<u8> {
    let buffer = pool.alloc(0, 4096)?;
    drop(pool);
    Ok(buffer[0])
}

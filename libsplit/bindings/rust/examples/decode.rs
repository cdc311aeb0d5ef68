// SPDX-License-Identifier: Apache-2.0
//! Decode a file of base64, without line breaks, into another one, from the first one's own memory.
use std::fs::File;
use std::io::{Error, ErrorKind, Result, Write};
use std::{env, process};

const CHUNK: usize = 4 << 20; // characters

/// The six bits of a character.
fn value(c: u8) -> Option<u32> {
    Some(match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    } as u32)
}

fn decode(coded: &[u8], out: &mut Vec<u8>) -> Result<()> {
    for four in coded.chunks(4) {
        let padding = four.iter().rev().take_while(|c| **c == b'=').count();
        let mut bits = 0;
        for c in &four[..four.len() - padding] {
            bits = bits << 6 | value(*c).ok_or_else(|| Error::new(ErrorKind::InvalidData, "this is not base64"))?;
        }
        if four.len() < 4 || padding > 2 {
            return Err(Error::new(ErrorKind::UnexpectedEof, "the end is missing"));
        }
        let bytes = (bits << (6 * padding)).to_be_bytes();
        out.extend_from_slice(&bytes[1..4 - padding]);
    }
    Ok(())
}

fn run(source: &str, target: &str) -> Result<()> {
    splitfs::set_flags(splitfs::COPY);
    let coded = splitfs::peek(File::open(source)?, 0, usize::MAX)?;
    let mut file = File::create(target)?;
    let mut out = Vec::with_capacity(CHUNK / 4 * 3);
    for part in coded.chunks(CHUNK) {
        out.clear();
        decode(part, &mut out)?;
        file.write_all(&out)?;
    }
    Ok(())
}

fn main() {
    let args: Vec<String> = env::args().collect();
    if args.len() != 3 {
        eprintln!("usage: decode INPUT OUTPUT");
        process::exit(2);
    }
    if let Err(e) = run(&args[1], &args[2]) {
        eprintln!("decode: {e}");
        process::exit(1);
    }
}

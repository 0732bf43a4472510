//! Writes the seeds of the fuzz targets anew: `cargo run -p esker-torture --example seeds`.

use esker_torture::fuzz::{TARGETS, seeds};

fn main() -> std::io::Result<()> {
    for target in TARGETS {
        let dir = seeds::directory().join(target.name);
        if dir.exists() {
            std::fs::remove_dir_all(&dir)?;
        }
        std::fs::create_dir_all(&dir)?;
        let seeds = seeds::make(target.name);
        for (index, seed) in seeds.iter().enumerate() {
            std::fs::write(dir.join(format!("{index:02}")), seed)?;
        }
        println!("{}: {} seeds, {} bytes", target.name, seeds.len(), seeds.iter().map(Vec::len).sum::<usize>());
    }
    Ok(())
}

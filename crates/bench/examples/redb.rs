//! Measures transactions of redb for `synconce bench db --redb PROGRAM`: COUNT puts of one key
//! each. The last word of the output is the time of a put in nanoseconds.
//!
//! usage: redb sync|no-sync DIRECTORY COUNT

use redb::{Database, Durability, ReadableTableMetadata, TableDefinition};
use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;

const TABLE: TableDefinition<'_, &str, &str> = TableDefinition::new("bench");

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [mode, directory, count] = words.as_slice() else {
        return Err("usage: redb sync|no-sync DIRECTORY COUNT".into());
    };
    let count: u32 = count.parse()?;
    let (durability, settings) = match mode.as_str() {
        "no-sync" => (Durability::None, "Durability::None"),
        _ => (Durability::Immediate, "Durability::Immediate"),
    };
    println!("{settings}");
    let path = PathBuf::from(directory).join("base");
    let base = Database::create(&path)?;
    let create = base.begin_write()?;
    create.open_table(TABLE)?;
    create.commit()?;
    let start = Instant::now();
    for number in 0..count {
        let mut put = base.begin_write()?;
        put.set_durability(durability);
        put.open_table(TABLE)?.insert(format!("key-{number:08}").as_str(), "value")?;
        put.commit()?;
    }
    let elapsed = start.elapsed();
    let found = base.begin_read()?.open_table(TABLE)?.len()?;
    if found != u64::from(count) {
        return Err(format!("{found} keys instead of {count}").into());
    }
    println!("{}", elapsed.as_secs_f64() * 1e9 / f64::from(count));
    Ok(())
}

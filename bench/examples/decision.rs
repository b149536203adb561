//! Prints what decisions cost: `cargo run --release -p bench --example decision`.

fn main() {
    println!("| request | prefix | body, bytes | decision, us | serde_json, us | ratio |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: |");
    for cost in bench::decision::table() {
        println!(
            "| {} | {} | {} | {:.2} | {:.1} | 1/{:.1} |",
            cost.request,
            cost.prefix_length,
            cost.body_bytes,
            cost.decision_ns as f64 / 1000.0,
            cost.tree_ns as f64 / 1000.0,
            cost.tree_ns as f64 / cost.decision_ns as f64,
        );
    }
}

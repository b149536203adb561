//! What kind of host is simulated.

use clap::Args;

/// The size and speed of the simulated host. The defaults resemble one host with a mid-sized
/// model: about 20,000 prompt tokens and, for a lone request, 120 generated tokens a second.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Simulated host")]
pub struct Params {
    /// Tokens in a block of the KV cache.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub block_tokens: u32,
    /// Blocks in the KV cache, shared by running requests and what earlier ones left.
    #[arg(long, default_value_t = 16_384, value_parser = clap::value_parser!(u32).range(1..))]
    pub cache_blocks: u32,
    /// Longest prompt plus answer, in tokens.
    #[arg(long, default_value_t = 131_072)]
    pub max_model_len: u32,
    /// Requests that run at the same time; more wait in a queue.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_running: u32,
    /// Tokens of one step, prompt and generated together: long prompts are worked off in pieces.
    #[arg(long, default_value_t = 2_048, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_batched_tokens: u32,
    /// Microseconds that every step takes.
    #[arg(long, default_value_t = 8_000)]
    pub step_us: u64,
    /// Microseconds that a step takes longer per request that generates in it.
    #[arg(long, default_value_t = 100)]
    pub sequence_us: u64,
    /// Microseconds that a step takes longer per prompt token that is not in the cache.
    #[arg(long, default_value_t = 50)]
    pub prefill_token_us: u64,
    /// Generated tokens when the request does not limit them.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub default_output_tokens: u32,
    /// Factor on all simulated times; 0 runs without delays.
    #[arg(long, default_value_t = 1.0, value_parser = time_scale)]
    pub time_scale: f64,
}

fn time_scale(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(scale) if (0.0..=1000.0).contains(&scale) => Ok(scale),
        _ => Err("a number from 0 to 1000".into()),
    }
}

impl Default for Params {
    fn default() -> Self {
        #[derive(clap::Parser)]
        struct Defaults {
            #[command(flatten)]
            params: Params,
        }
        <Defaults as clap::Parser>::parse_from(["defaults"]).params
    }
}

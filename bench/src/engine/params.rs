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
    /// Nanoseconds that a step takes longer per token of context of each request that generates in it.
    #[arg(long, default_value_t = 0)]
    pub context_token_ns: u64,
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

impl Params {
    /// A host of eight H100 (80 GB, SXM) that serves Llama 3.1 70B in bfloat16 with tensor parallelism.
    ///
    /// - Cache: 0.9 of 640 GB less 141 GB of weights (70.6e9 parameters of 2 bytes) and 15 GB of
    ///   activations leave 420 GB; a token takes 80 layers x 8 heads x 128 x 2 (key and value) x 2
    ///   bytes = 320 KiB (the model's card and configuration). That is 1.28 million tokens.
    /// - Steps: the weights are read once a step, and the context of each request that generates. H100 reads
    ///   3.35 TB/s (data sheet), eight 26.8 TB/s; half of it is taken for real: 10.5 ms, and 24 ns per token.
    /// - Prompts: TensorRT-LLM 1.0's performance overview has 762 generated tokens a second for 2,048 in, 128
    ///   out, Llama 3.3 70B in FP8 on two H100: 12,200 prompt tokens a second. Four times the cards at
    ///   0.8 of ideal scaling and half the speed in bfloat16 come to 20,000.
    /// - Batch: 8,192 tokens in a step and at most 256 requests, as vLLM's server does on such cards.
    pub fn llama_70b_on_eight_h100() -> Self {
        Self {
            cache_blocks: 80_000,
            max_running: 256,
            max_batched_tokens: 8_192,
            step_us: 10_500,
            sequence_us: 40,
            context_token_ns: 24,
            prefill_token_us: 50,
            ..Self::default()
        }
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

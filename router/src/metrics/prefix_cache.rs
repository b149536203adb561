//! What an instance's own metrics page says about its prefix cache.

/// Read from an instance's metrics page, summed over its models and ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PrefixCache {
    /// Prompt tokens found in the cache since the instance started.
    pub hits: Option<u64>,
    /// Prompt tokens looked up since the instance started.
    pub queries: Option<u64>,
    /// A hit ratio, 0 to 1, that the instance reports itself.
    pub ratio: Option<f64>,
}

/// The most bytes of a metrics page worth reading; vLLM's has about 100 KiB.
pub const PAGE_BYTES: usize = 4 << 20;

impl PrefixCache {
    /// Reads a page in the Prometheus text format. Lines that do not parse are skipped: the page
    /// belongs to another program.
    ///
    /// vLLM counts both sides in tokens. SGLang counts cached tokens by source and all prompt
    /// tokens; older versions have only the gauge.
    pub fn parse(page: &str) -> PrefixCache {
        let mut seen = PrefixCache::default();
        let mut ratios = (0.0, 0_u32);
        for line in page.lines() {
            let Some((name, value)) = sample(line) else { continue };
            let total = match name {
                "vllm:prefix_cache_hits_total" | "vllm:prefix_cache_hits" => &mut seen.hits,
                "vllm:prefix_cache_queries_total" | "vllm:prefix_cache_queries" => {
                    &mut seen.queries
                }
                "sglang:cached_tokens_total" => &mut seen.hits,
                "sglang:prompt_tokens_total" => &mut seen.queries,
                "sglang:cache_hit_rate" => {
                    ratios = (ratios.0 + value, ratios.1 + 1);
                    continue;
                }
                _ => continue,
            };
            *total = Some(total.unwrap_or(0).saturating_add(value as u64));
        }
        if ratios.1 > 0 {
            seen.ratio = Some((ratios.0 / f64::from(ratios.1)).clamp(0.0, 1.0));
        }
        seen
    }

    /// Whether the page said anything.
    pub fn is_empty(&self) -> bool {
        *self == PrefixCache::default()
    }
}

/// Name and value of a line, without its labels and its time. `None` for comments, and for values
/// that are no finite number.
fn sample(line: &str) -> Option<(&str, f64)> {
    let line = line.trim();
    if line.starts_with('#') {
        return None;
    }
    let name_end = line.find(['{', ' ', '\t'])?;
    // Label values may hold spaces and braces, but a value never holds a brace.
    let rest = match line[name_end..].starts_with('{') {
        true => &line[line.rfind('}')? + 1..],
        false => &line[name_end..],
    };
    let value: f64 = rest.split_ascii_whitespace().next()?.parse().ok()?;
    (value.is_finite() && value >= 0.0).then_some((&line[..name_end], value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_vllm_and_sums_over_engines() {
        let page = "# HELP vllm:prefix_cache_hits_total Tokens.\n\
                    # TYPE vllm:prefix_cache_hits_total counter\n\
                    vllm:prefix_cache_hits_total{engine=\"0\",model_name=\"a } b\"} 1.5e+03\n\
                    vllm:prefix_cache_hits_total{engine=\"1\",model_name=\"m\"} 500.0 1700000000\n\
                    vllm:prefix_cache_queries_total{engine=\"0\"} 4000.0\n\
                    vllm:prefix_cache_hits_created{engine=\"0\"} 1.7e9\n\
                    vllm:kv_cache_usage_perc 0.5\n";
        let seen = PrefixCache::parse(page);
        assert_eq!(seen, PrefixCache { hits: Some(2000), queries: Some(4000), ratio: None });
    }

    #[test]
    fn reads_sglang_by_source_and_its_gauge() {
        let page = "sglang:cached_tokens_total{cache_source=\"device\"} 30\n\
                    sglang:cached_tokens_total{cache_source=\"host\"} 12\n\
                    sglang:prompt_tokens_total{model_name=\"m\"} 8.4e1\n\
                    sglang:cache_hit_rate{model_name=\"m\"} 0.5\n";
        let seen = PrefixCache::parse(page);
        assert_eq!(seen, PrefixCache { hits: Some(42), queries: Some(84), ratio: Some(0.5) });
    }

    #[test]
    fn nonsense_is_skipped() {
        let page = "vllm:prefix_cache_hits_total NaN\nvllm:prefix_cache_hits_total\n{} 1\n\
                    vllm:prefix_cache_queries_total{ 3\n\u{1F600} 1\n";
        assert!(PrefixCache::parse(page).is_empty());
    }
}

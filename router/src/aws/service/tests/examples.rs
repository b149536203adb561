//! Texts that match the service model's patterns, and such that do not: told by a person, not by an engine.

/// A pattern, a text that matches it, and texts that do not.
pub(super) struct Example {
    pattern: &'static str,
    /// The character before `~` may be there any number of times.
    good: &'static str,
    pub(super) bad: &'static [&'static str],
}

const EXAMPLES: &[Example] = &[
    Example {
        pattern: r"mig-[0-9]+g\.[0-9]+gb([+-][a-z0-9.]+)*",
        good: "mig-1g.5gb+m~",
        bad: &["mig-1g.5gb+", "mig-1g-5gb", "MIG-1g.5gb", ""],
    },
    Example { pattern: r"[A-Za-z0-9\.\-_]+", good: "a.-_~", bad: &["a b", "ä", "a/b"] },
    Example { pattern: r"(?!\s*$).+", good: "a ~", bad: &[" ", "   ", "\t"] },
    Example { pattern: r".*", good: "a~", bad: &["a\nb", "\n"] },
    Example {
        pattern: r"[a-zA-Z0-9](-*[a-zA-Z0-9])*\/[a-zA-Z0-9](-*[a-zA-Z0-9+.])*",
        good: "text/x-~y",
        bad: &["", "text", "text/", "/x", "-/x", "a/b c", "a/-"],
    },
    Example {
        pattern: r"[a-zA-Z0-9](-*[a-zA-Z0-9])*\/[a-zA-Z0-9](-*[a-zA-Z0-9.])*",
        good: "text/x-~y",
        bad: &["text", "text/", "/x", "-/x", "a/b+c", "a/b-"],
    },
    Example { pattern: r"[\s\S]+", good: "a\n~", bad: &[] },
    Example { pattern: r"[\S\s]*", good: "a\n~", bad: &[] },
    Example {
        pattern: r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}",
        good: "a-Z09~",
        bad: &["-a", "a-", "a_b", "a b", "a.b", "ä", "a\n", "ENTER NAME"],
    },
    Example {
        pattern: r"[\S]+",
        good: "123456789012.dkr.ecr.us-east-1.amazonaws.com/vllm:latest~",
        bad: &["", "a b", "a\n", "\t"],
    },
    Example {
        pattern: r"(https|s3)://([^/])/?(.*)",
        good: "s3://bucket/a~",
        bad: &["", "s3://", "s3:///", "http://a/b", "S3://a"],
    },
    Example {
        pattern: r"(https|s3)://([^/]+)/?(.*)",
        good: "s3://bucket/a~",
        bad: &["", "s3://", "s3:///a", "http://a/b", "/a"],
    },
    Example {
        pattern: r"arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]*:[0-9]{12}:endpoint/.*",
        good: "arn:aws:sagemaker:us-east-1:123456789012:endpoint/a~",
        bad: &["arn:aws:sagemaker:us-east-1:123456789012:model/aaa", "aaaaaaaaaaaaaaaaaaaaaaaa"],
    },
    Example {
        pattern: r"arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]*:[0-9]{12}:endpoint-config/.*",
        good: "arn:aws:sagemaker:us-east-1:123456789012:endpoint-config/a~",
        bad: &["arn:aws:sagemaker:us-east-1:123456789012:endpoint/aaa"],
    },
    Example { pattern: r"[a-zA-Z0-9-]+", good: "a-~", bad: &["", "a_b", "a b", "ä", "*"] },
    Example {
        pattern: r"[a-zA-Z_][a-zA-Z0-9_]*",
        good: "_aZ0~",
        bad: &["", "0a", "a-b", "a b", "a=b", "ä"],
    },
    Example {
        pattern: r"[a-zA-Z0-9]([\-a-zA-Z0-9]*[a-zA-Z0-9])?",
        good: "a-Z09~",
        bad: &["", "-a", "a-", "a_b", "a b", "a'b", "ä"],
    },
    Example { pattern: r"[a-zA-Z0-9:/_-]*", good: "alias/a:_-~", bad: &["a b", "a.b", "ä"] },
    Example {
        pattern: r"/(?!.*\.\.)[a-zA-Z0-9/_.\-]+",
        good: "/metrics/a.b-~",
        bad: &["", "/", "metrics", "/..", "/a/../b", "/a..", "/a b"],
    },
    Example {
        pattern: r"arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]*:[0-9]{12}:[a-z0-9\-]{1,14}/.*",
        good: "arn:aws:sagemaker:us-east-1:123456789012:training-plan/a~",
        bad: &["arn:aws:sagemaker:us-east-1:123456789012:/aaaaa", "aaaaaaaaaaaaaaaaaaaaaaaa"],
    },
    Example {
        pattern: r"arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]*:[0-9]{12}:model/.*",
        good: "arn:aws:sagemaker:us-east-1:123456789012:model/a~",
        bad: &["arn:aws:sagemaker:us-east-1:123456789012:endpoint/aaa"],
    },
    Example {
        pattern: r"arn:aws[a-z-]*:sagemaker:[a-z0-9-]*:[0-9]{12}:.+",
        good: "arn:aws:sagemaker:us-east-1:123456789012:endpoint/a~",
        bad: &["", "a", "arn:aws:s3:us-east-1:123456789012:a", "arn:aws:sagemaker:us:12345:a"],
    },
    Example {
        pattern: r"arn:aws[a-z\-]*:iam::\d{12}:role/?[a-zA-Z_0-9+=,.@\-_/]+",
        good: "arn:aws:iam::123456789012:role/ServiceRole~",
        bad: &[
            "arn:aws:iam::123456789012:user/SomeBody",
            "arn:aws:iam::12345678901:role/ServiceRole",
            "arn:aws:iam::١٢٣٤٥٦٧٨٩٠١٢:role/ServiceRole",
            "aaaaaaaaaaaaaaaaaaaaaaaa",
        ],
    },
    Example { pattern: r"[-0-9a-zA-Z]+", good: "sg-0a~", bad: &["", "a b", "a_b", "ä"] },
    Example {
        pattern: r"arn:aws[a-z\-]*:sns:[a-z0-9\-]*:[0-9]{12}:[a-zA-Z0-9_.-]+",
        good: "arn:aws:sns:us-east-1:123456789012:topic~",
        bad: &["", "topic", "arn:aws:sns:us-east-1:123456789012:", "arn:aws:sns:::a"],
    },
    Example {
        pattern: r"([\p{L}\p{Z}\p{N}_.:/=+\-@]*)",
        good: "Größe 1_.:/=+-@~",
        bad: &["a#b", "a\nb", "a,b", "a&b"],
    },
    Example {
        pattern: r"(arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]*:[0-9]{12}:[a-z\-]*\/)?([a-zA-Z0-9]([a-zA-Z0-9-]){0,62})(?<!-)(\/[0-9]{1,9})?",
        good: "arn:aws:sagemaker:us-e~ast-1:123456789012:model-package/group/1",
        bad: &["-a", "a-", "a-/1", "a/", "a/x", "a/0123456789"],
    },
];

impl Example {
    /// For a pattern of the model.
    pub(super) fn of(pattern: &str) -> &'static Example {
        EXAMPLES
            .iter()
            .find(|example| example.pattern == pattern)
            .unwrap_or_else(|| panic!("{pattern} has no example"))
    }

    /// A text that matches, of a number of characters; `None` if the example cannot be as short.
    pub(super) fn good(&self, length: usize) -> Option<String> {
        padded(self.good, length)
    }

    /// The shortest.
    pub(super) fn shortest(&self) -> String {
        self.good.replace('~', "")
    }
}

/// A text in which the character before `~` is repeated until it has a number of characters.
pub(super) fn padded(text: &str, length: usize) -> Option<String> {
    let (start, end) = text.split_once('~').expect("a mark");
    let fixed = start.chars().count() + end.chars().count();
    let padding = start.chars().last().expect("something to repeat");
    let repeated: String = std::iter::repeat_n(padding, length.checked_sub(fixed)?).collect();
    Some(format!("{start}{repeated}{end}"))
}

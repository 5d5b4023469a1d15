//! Sizes and shares as people write them: `8G`, `64M`, `7%`.

/// Bytes from a number with an optional suffix: `K M G T P` (powers of 1024; `k`, `KiB` and `KB`
/// mean the same), or `B` and nothing for bytes. A fraction is allowed (`1.5G`).
///
/// # Errors
/// A message that names the text, when it is not a size or does not fit 64 bits.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not a size; write it like 4096, 64M or 1.5G");
    let trimmed = text.trim();
    let split = trimmed
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(trimmed.len());
    let (number, suffix) = trimmed.split_at(split);
    let suffix = suffix.trim().to_ascii_uppercase();
    let suffix = suffix
        .strip_suffix("IB")
        .or_else(|| suffix.strip_suffix('B'))
        .unwrap_or(&suffix);
    let shift = match suffix {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        "P" => 50,
        _ => return Err(wrong()),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if number.is_empty() || (whole.is_empty() && fraction.is_empty()) || fraction.len() > 9 {
        return Err(wrong());
    }
    let digits = |text: &str| -> Result<u64, String> {
        if text.is_empty() {
            return Ok(0);
        }
        text.parse().map_err(|_| wrong())
    };
    let too_large = || format!("{text} is too large");
    let whole = digits(whole)?
        .checked_mul(1 << shift)
        .ok_or_else(too_large)?;
    let scale = 10u128.pow(fraction.len() as u32);
    let part = (u128::from(digits(fraction)?) << shift) / scale;
    whole.checked_add(part as u64).ok_or_else(too_large)
}

/// Hundredths of a percent from `7%`, `7`, `7.25%`.
///
/// # Errors
/// A message that names the text, when it is not a share from 0 % to 100 %.
pub fn parse_basis_points(text: &str) -> Result<u32, String> {
    match parse_share(text)? {
        points @ ..=10_000 => Ok(points),
        _ => Err(no_share(text)),
    }
}

fn no_share(text: &str) -> String {
    format!("'{text}' is not a share; write it like 7% or 12.5%")
}

/// A share in 1/100 percent, which may be more than all.
pub fn parse_share(text: &str) -> Result<u32, String> {
    let wrong = || no_share(text);
    let number = text.trim().trim_end_matches('%').trim_end();
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.len() > 2 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return Err(wrong());
    }
    let whole: u32 = whole.parse().map_err(|_| wrong())?;
    let fraction: u32 = format!("{fraction:0<2}").parse().map_err(|_| wrong())?;
    let points = whole
        .checked_mul(100)
        .and_then(|points| points.checked_add(fraction))
        .ok_or_else(wrong)?;
    Ok(points)
}

/// Bytes for people: `512 B`, `4.0 KiB`, `1.5 GiB`.
#[must_use]
pub fn show_bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = UNITS[0];
    for next in &UNITS[1..] {
        if value < 1023.95 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    format!("{value:.1} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("8G", 8 << 30),
            ("64M", 64 << 20),
            ("64MiB", 64 << 20),
            ("64mb", 64 << 20),
            ("512b", 512),
            ("1.5G", 3 << 29),
            (".5K", 512),
            (" 2 T ", 2 << 40),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in [
            "",
            "G",
            "-1",
            "8X",
            "1..5",
            "x8",
            ".",
            "8 G B",
            "99999999999999999999",
        ] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
        assert!(parse_bytes("17179869184G").is_err());
    }

    #[test]
    fn shares() {
        for (text, points) in [
            ("7%", 700),
            ("7", 700),
            ("12.5%", 1250),
            ("0.25 %", 25),
            ("100%", 10_000),
        ] {
            assert_eq!(parse_basis_points(text), Ok(points), "{text}");
        }
        for text in ["", "%", "101%", "-1", "7.123", "seven", "1.x"] {
            assert!(parse_basis_points(text).is_err(), "{text}");
        }
    }

    #[test]
    fn shown() {
        assert_eq!(show_bytes(0), "0 B");
        assert_eq!(show_bytes(4096), "4.0 KiB");
        assert_eq!(show_bytes((1 << 20) - 1), "1.0 MiB");
        assert_eq!(show_bytes(u64::MAX), "16.0 EiB");
    }
}

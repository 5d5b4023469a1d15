//! Records of extended headers: `LENGTH KEY=VALUE\n`, where the length counts itself, and the value may be any bytes.

use persimmon::Timestamp;

/// Adds a record.
pub fn put(records: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    // A blank, the equals sign and the end of the line.
    let rest = key.len() + value.len() + 3;
    let mut len = rest + 1;
    while rest + len.to_string().len() != len {
        len = rest + len.to_string().len();
    }
    records.extend_from_slice(format!("{len} ").as_bytes());
    records.extend_from_slice(key);
    records.push(b'=');
    records.extend_from_slice(value);
    records.push(b'\n');
}

/// All records, or `None` where they are none.
pub fn parse(mut records: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    let mut found = Vec::new();
    while !records.is_empty() {
        let blank = records.iter().position(|byte| *byte == b' ')?;
        let len: usize = number(records.get(..blank)?)?.try_into().ok()?;
        let record = records.get(blank + 1..len)?.strip_suffix(b"\n")?;
        let equals = record.iter().position(|byte| *byte == b'=')?;
        found.push((record.get(..equals)?, record.get(equals + 1..)?));
        records = records.get(len..)?;
    }
    Some(found)
}

/// A number in decimal digits alone.
pub fn number(text: &[u8]) -> Option<u64> {
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(text).ok().filter(|_| is_number)?;
    text.parse().ok()
}

const NANOSECONDS: i128 = 1_000_000_000;

/// Seconds with a fraction; before 1970 with a minus sign before both.
pub fn time(time: Timestamp) -> String {
    let total = i128::from(time.seconds) * NANOSECONDS + i128::from(time.nanoseconds);
    let sign = if total < 0 { "-" } else { "" };
    let total = total.abs();
    format!("{sign}{}.{:09}", total / NANOSECONDS, total % NANOSECONDS)
}

/// What [`time`] wrote.
pub fn parse_time(text: &[u8]) -> Option<Timestamp> {
    let (sign, text) = match text.strip_prefix(b"-") {
        Some(text) => (-1, text),
        None => (1, text),
    };
    let mut parts = text.splitn(2, |byte| *byte == b'.');
    let seconds = i128::from(number(parts.next()?)?);
    let fraction = parts.next().unwrap_or(b"0");
    let digits = u32::try_from(fraction.len()).ok().filter(|len| *len <= 9)?;
    let fraction = i128::from(number(fraction)?) * 10_i128.pow(9 - digits);
    let total = sign * (seconds * NANOSECONDS + fraction);
    Some(Timestamp {
        seconds: total.div_euclid(NANOSECONDS).try_into().ok()?,
        nanoseconds: total.rem_euclid(NANOSECONDS).try_into().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_any_bytes_come_back() {
        for len in [0, 1, 80, 88, 89, 90, 91, 980, 990, 9_990] {
            let value: Vec<u8> = (0..len).map(|at| b"\n=\0 9\xff"[at % 6]).collect();
            let mut records = Vec::new();
            put(&mut records, b"key", &value);
            put(&mut records, b"b", b"");
            let found = parse(&records).unwrap_or_default();
            assert_eq!(
                found,
                [(b"key".as_slice(), value.as_slice()), (b"b", b"")],
                "{len}"
            );
        }
    }

    #[test]
    fn what_are_no_records_is_none() {
        for wrong in [
            "5",
            "x a=b\n",
            "6 a=b\n9",
            "7 a=b\n",
            "2 a=b\n",
            "0 a=b\n",
            "6 abc\n",
            "99999999999999999999999 a=b\n",
            "+6 a=b\n",
        ] {
            assert_eq!(parse(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn times_come_back_to_the_nanosecond() {
        for (seconds, nanoseconds, text) in [
            (0, 0, "0.000000000"),
            (1, 5, "1.000000005"),
            (-1, 500_000_000, "-0.500000000"),
            (-2, 1, "-1.999999999"),
            (i64::MAX, 999_999_999, "9223372036854775807.999999999"),
            (i64::MIN, 0, "-9223372036854775808.000000000"),
        ] {
            let at = Timestamp {
                seconds,
                nanoseconds,
            };
            assert_eq!(time(at), text);
            assert_eq!(parse_time(text.as_bytes()), Some(at));
        }
        for wrong in [
            "",
            "-",
            "1.",
            "a",
            "1.0000000001",
            "--1",
            "1.-1",
            "99999999999999999999",
        ] {
            assert_eq!(parse_time(wrong.as_bytes()), None, "{wrong}");
        }
    }
}

//! Numbers.

use std::cmp::Ordering;
use std::fmt::Write as _;
use std::num::IntErrorKind;

use super::{Misfit, misfit, within};

/// The most digits of a decimal, and the largest power of ten either way: the range
/// of a double, so that every reader of JSON can take the number in.
const MAX_DIGITS: usize = 1_000;
const MAX_POWER: i64 = 308;

const BAD_INTEGER: Misfit = misfit("BAD_INTEGER", "is not a whole number such as 42 or -7");
const INTEGER_RANGE: Misfit = misfit(
    "NUMBER_OUT_OF_RANGE",
    "does not fit 64 bits (-9223372036854775808 to 9223372036854775807)",
);
const DECIMAL_RANGE: Misfit = misfit(
    "NUMBER_OUT_OF_RANGE",
    "is outside 1e-308 to 1e308 or has more than 1000 digits",
);
const FLOAT_RANGE: Misfit = misfit(
    "NUMBER_OUT_OF_RANGE",
    "does not fit a floating-point number of 64 bits (about 5e-324 to 1.8e308)",
);

/// Said of `1.234` where a dot may be either.
const AMBIGUOUS: &str = "may be 1.234 or 1234 as well, since the delimiter is ';'; say which mark decimals have with the column's `decimal_mark`: \".\" or \",\"";

/// What stands before the fraction of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Mark {
    /// A dot.
    #[default]
    Dot,
    /// A comma.
    Comma,
    /// A dot or a comma.
    Either,
    /// The same, but for a dot that may as well stand between thousands.
    Guessed,
}

impl Mark {
    /// How bounds are written: as in the file, or as numbers of JSON.
    pub(super) fn of_bounds(self) -> Self {
        match self {
            Self::Dot => Self::Dot,
            _ => Self::Either,
        }
    }

    /// The mark in these digits, which have no exponent.
    fn within(self, mantissa: &str) -> char {
        match self {
            Self::Dot => '.',
            Self::Either | Self::Guessed if mantissa.contains('.') => '.',
            Self::Comma | Self::Either | Self::Guessed => ',',
        }
    }

    /// Whether an unsigned number may have been meant with a thousands separator: `1.234`.
    fn is_open(self, unsigned: &str) -> bool {
        self == Self::Guessed
            && unsigned.split_once('.').is_some_and(|(whole, rest)| {
                matches!(whole.len(), 1..=3)
                    && !whole.starts_with('0')
                    && rest.len() == 3
                    && digits_only(whole)
                    && digits_only(rest)
            })
    }
}

/// Told with an example that the column would take.
fn bad_decimal(mark: Mark) -> Misfit {
    misfit(
        "BAD_DECIMAL",
        match mark {
            Mark::Dot => "is not a number such as 10.50 or 1.5e3 (no thousands separators)",
            Mark::Comma => "is not a number such as 10,50 or 1,5e3 (no thousands separators)",
            Mark::Either | Mark::Guessed => {
                "is not a number such as 10,50 or 10.50 (no thousands separators)"
            }
        },
    )
}

/// The same for a float.
fn bad_float(mark: Mark) -> Misfit {
    misfit(
        "BAD_FLOAT",
        match mark {
            Mark::Dot => "is not a finite number such as 0.5 or 1.5e-3 (no thousands separators)",
            Mark::Comma => "is not a finite number such as 0,5 or 1,5e-3 (no thousands separators)",
            Mark::Either | Mark::Guessed => {
                "is not a finite number such as 0,5 or 0.5 (no thousands separators)"
            }
        },
    )
}

/// A bound, and how it was written.
pub(super) type Bound<T> = Option<(T, String)>;

/// A column of whole numbers.
#[derive(Debug, Default)]
pub(super) struct IntegerRule {
    pub(super) min: Bound<i64>,
    pub(super) max: Bound<i64>,
}

impl IntegerRule {
    pub(super) fn convert(&self, text: &str, out: &mut String) -> Result<(), Misfit> {
        let number = integer(text)?;
        within(&number, self.min.as_ref(), self.max.as_ref())?;
        // Written as JSON writes it already, mostly.
        match text.strip_prefix('-').unwrap_or(text).as_bytes() {
            [b'1'..=b'9', ..] | [b'0'] if number != 0 || text == "0" => out.push_str(text),
            _ => {
                let _ = write!(out, "{number}");
            }
        }
        Ok(())
    }
}

/// Reads a whole number.
pub(super) fn integer(text: &str) -> Result<i64, Misfit> {
    text.parse().map_err(|error: std::num::ParseIntError| {
        if matches!(
            error.kind(),
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow
        ) && digits_only(text.strip_prefix(['+', '-']).unwrap_or(text))
        {
            INTEGER_RANGE
        } else {
            BAD_INTEGER
        }
    })
}

fn digits_only(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit())
}

/// A decimal number as it is written, checked.
#[derive(Debug, Clone, Copy)]
struct Decimal<'t> {
    negative: bool,
    /// Digits before the point, without leading zeros.
    whole: &'t str,
    fraction: &'t str,
    /// The exponent, where the number is not zero.
    exponent: Option<i64>,
    /// The power of ten of the first digit that is not zero; `None`: the number is zero.
    power: Option<i64>,
}

impl<'t> Decimal<'t> {
    fn parse(text: &'t str, mark: Mark) -> Result<Self, Misfit> {
        let negative = text.starts_with('-');
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        if mark.is_open(unsigned) {
            return Err(misfit("BAD_DECIMAL", AMBIGUOUS));
        }
        let (mantissa, exponent) = match unsigned.bytes().position(|b| matches!(b, b'e' | b'E')) {
            Some(at) => {
                let exponent = exponent(&unsigned[at + 1..]);
                (&unsigned[..at], Some(exponent.ok_or(bad_decimal(mark))?))
            }
            None => (unsigned, None),
        };
        let (whole, fraction) = mantissa
            .split_once(mark.within(mantissa))
            .unwrap_or((mantissa, ""));
        if whole.is_empty() && fraction.is_empty() || !digits_only(whole) || !digits_only(fraction)
        {
            return Err(bad_decimal(mark));
        }
        let whole = whole.trim_start_matches('0');
        if whole.len() + fraction.len() > MAX_DIGITS {
            return Err(DECIMAL_RANGE);
        }
        let leading = if whole.is_empty() {
            fraction
                .bytes()
                .position(|b| b != b'0')
                .map(|zeros| -(zeros as i64) - 1)
        } else {
            Some(whole.len() as i64 - 1)
        };
        let power = leading.map(|leading| leading.saturating_add(exponent.unwrap_or(0)));
        if power.is_some_and(|power| power.abs() > MAX_POWER) {
            return Err(DECIMAL_RANGE);
        }
        Ok(Self {
            negative: negative && power.is_some(),
            whole,
            fraction,
            // A zero is one whatever its exponent says.
            exponent: exponent.filter(|_| power.is_some()),
            power,
        })
    }

    /// Writes the number in the spelling of JSON, digit by digit: a sign, leading zeros
    /// and a bare point are tidied, trailing zeros are kept.
    fn write(self, out: &mut String) {
        if self.negative {
            out.push('-');
        }
        out.push_str(if self.whole.is_empty() {
            "0"
        } else {
            self.whole
        });
        if !self.fraction.is_empty() {
            out.push('.');
            out.push_str(self.fraction);
        }
        if let Some(exponent) = self.exponent.filter(|exponent| *exponent != 0) {
            let _ = write!(out, "e{exponent}");
        }
    }

    /// Its digits from the first that is not zero.
    fn digits(self) -> impl Iterator<Item = u8> + use<'t> {
        let digits = self.whole.bytes().chain(self.fraction.bytes());
        digits.skip_while(|b| *b == b'0')
    }
}

/// A decimal number that can be compared: sign, digits without zeros around them, and
/// the power of ten of the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Exact {
    negative: bool,
    digits: Vec<u8>,
    power: i64,
}

impl Exact {
    /// Reads a decimal.
    pub(super) fn parse(text: &str, mark: Mark) -> Result<Self, Misfit> {
        Decimal::parse(text, mark).map(Self::of)
    }

    /// Whether all its digits stand within so many places behind the point; a negative
    /// number of places is before it.
    fn fits(&self, scale: i16) -> bool {
        self.digits.is_empty() || self.power - (self.digits.len() as i64 - 1) >= -i64::from(scale)
    }

    fn of(decimal: Decimal<'_>) -> Self {
        let mut digits: Vec<u8> = decimal.digits().collect();
        let significant = digits
            .iter()
            .rposition(|b| *b != b'0')
            .map_or(0, |at| at + 1);
        digits.truncate(significant);
        Self {
            negative: decimal.negative,
            digits,
            power: decimal.power.unwrap_or(0),
        }
    }
}

impl PartialOrd for Exact {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        let sign = |number: &Self| match (number.digits.is_empty(), number.negative) {
            (true, _) => 0,
            (false, true) => -1,
            (false, false) => 1,
        };
        let (left, right) = (sign(self), sign(other));
        if left != right {
            return Some(left.cmp(&right));
        }
        // Without zeros at the end, more digits of one beginning are more.
        let size = self
            .power
            .cmp(&other.power)
            .then_with(|| self.digits.cmp(&other.digits));
        Some(if left < 0 { size.reverse() } else { size })
    }
}

/// One spelling for equal decimals, out of their JSON.
pub(crate) fn plain_digits(json: &str) -> Option<String> {
    let exact = Exact::parse(json, Mark::Dot).ok()?;
    let sign = if exact.negative { "-" } else { "" };
    let digits = String::from_utf8(exact.digits).ok()?;
    Some(format!("{sign}{digits}e{}", exact.power))
}

/// Whether a number in JSON loses nothing where so many places are kept.
pub(super) fn fits_scale(json: &str, scale: i16) -> bool {
    Exact::parse(json, Mark::Dot).is_ok_and(|exact| exact.fits(scale))
}

/// A column of decimals.
#[derive(Debug, Default)]
pub(super) struct DecimalRule {
    pub(super) mark: Mark,
    pub(super) min: Bound<Exact>,
    pub(super) max: Bound<Exact>,
}

impl DecimalRule {
    pub(super) fn convert(&self, text: &str, out: &mut String) -> Result<(), Misfit> {
        let decimal = Decimal::parse(text, self.mark)?;
        if self.min.is_some() || self.max.is_some() {
            within(&Exact::of(decimal), self.min.as_ref(), self.max.as_ref())?;
        }
        decimal.write(out);
        Ok(())
    }
}

/// A column of floating-point numbers.
#[derive(Debug, Default)]
pub(super) struct FloatRule {
    pub(super) mark: Mark,
    pub(super) min: Bound<f64>,
    pub(super) max: Bound<f64>,
}

impl FloatRule {
    pub(super) fn convert(&self, text: &str, out: &mut String) -> Result<(), Misfit> {
        let number = float(text, self.mark)?;
        within(&number, self.min.as_ref(), self.max.as_ref())?;
        // The shortest spelling that reads back as the same number.
        let _ = write!(out, "{number:?}");
        Ok(())
    }
}

/// Reads a floating-point number.
pub(super) fn float(text: &str, mark: Mark) -> Result<f64, Misfit> {
    // The names of what is not finite are made of letters.
    if !text
        .bytes()
        .all(|b| b.is_ascii_digit() || matches!(b, b'+' | b'-' | b'.' | b',' | b'e' | b'E'))
    {
        return Err(bad_float(mark));
    }
    if mark.is_open(text.strip_prefix(['+', '-']).unwrap_or(text)) {
        return Err(misfit("BAD_FLOAT", AMBIGUOUS));
    }
    let number: Result<f64, _> = match mark.within(text) {
        ',' if text.contains('.') => return Err(bad_float(mark)),
        ',' => text.replacen(',', ".", 1).parse(),
        _ => text.parse(),
    };
    let number = number.map_err(|_| bad_float(mark))?;
    let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
    let vanished = number == 0.0 && mantissa.bytes().any(|b| matches!(b, b'1'..=b'9'));
    if vanished || !number.is_finite() {
        return Err(FLOAT_RANGE);
    }
    // There is one zero in JSON's database form.
    Ok(if number == 0.0 { 0.0 } else { number })
}

/// An exponent; `None`: it is none. One that is too large for any number is cut to a bound
/// beyond the range, so that a zero in front of it still counts as zero.
fn exponent(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits_only(digits) {
        return None;
    }
    let bound = 1_000_000;
    let value = digits.parse::<i64>().unwrap_or(bound).min(bound);
    Some(if text.starts_with('-') { -value } else { value })
}

//! Whether the page's colours can be read and told apart, by computation: contrast as WCAG 2 defines it, and
//! the distance of the series' colours as people see them who lack one of the three kinds of cones.

const STYLE: &str = include_str!("../../../../web/report.css");

/// Red, green and blue, as light and not as numbers of a screen.
type Light = [f64; 3];

/// The colour `name` of the light and of the dark theme.
fn colours(name: &str) -> [Light; 2] {
    let begin = format!("--{name}: light-dark(");
    let (_, rest) = STYLE.split_once(&begin).unwrap_or_else(|| panic!("the style has no {name}"));
    let (values, _) = rest.split_once(')').unwrap();
    let both: Vec<Light> = values.split(", ").map(light).collect();
    [both[0], both[1]]
}

fn light(hex: &str) -> Light {
    let part = |at: usize| f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap()) / 255.0;
    let linear = |v: f64| if v <= 0.04045 { v / 12.92 } else { ((v + 0.055) / 1.055).powf(2.4) };
    [1, 3, 5].map(|at| linear(part(at)))
}

fn luminance([r, g, b]: Light) -> f64 {
    0.2126 * r + 0.7152 * g + 0.0722 * b
}

/// 1 of the same brightness, 21 of black and white.
fn contrast(a: Light, b: Light) -> f64 {
    let (a, b) = (luminance(a) + 0.05, luminance(b) + 0.05);
    a.max(b) / a.min(b)
}

/// Machado, Oliveira and Fernandes, "A physiologically-based model for simulation of color vision
/// deficiency", 2009, of full severity; first everybody else.
const EYES: [(&str, [Light; 3]); 4] = [
    ("usual", [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
    (
        "protanopia",
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    ),
    (
        "deuteranopia",
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    ),
    (
        "tritanopia",
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
    ),
];

fn seen(by: &[Light; 3], colour: Light) -> Light {
    by.map(|row| row.iter().zip(colour).map(|(weight, part)| weight * part).sum::<f64>().clamp(0.0, 1.0))
}

/// In CIE's L*a*b*, where equal distances look about equally different; 2 is just seen.
fn lab([r, g, b]: Light) -> Light {
    let f = |t: f64| if t > 0.008856 { t.cbrt() } else { 7.787 * t + 16.0 / 116.0 };
    let x = f((0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.95047);
    let y = f(luminance([r, g, b]));
    let z = f((0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.08883);
    [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
}

fn distance(a: Light, b: Light) -> f64 {
    lab(a).iter().zip(lab(b)).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
}

#[test]
fn words_have_the_contrast_that_readers_need() {
    for name in ["ink", "quiet", "accent", "good", "bad", "warn"] {
        for ground in ["paper", "sunk"] {
            for theme in 0..2 {
                let found = contrast(colours(name)[theme], colours(ground)[theme]);
                assert!(found >= 4.5, "{name} on {ground}, theme {theme}: {found:.2}");
            }
        }
    }
    assert!((contrast(light("#000000"), light("#ffffff")) - 21.0).abs() < 1e-9);
    assert!(contrast(light("#777777"), light("#ffffff")) < 4.5, "this grey is known to be too light");
}

#[test]
fn lines_are_told_apart_whatever_cones_an_eye_has() {
    for theme in 0..2 {
        let series: Vec<Light> = (0..7).map(|n| colours(&format!("series-{n}"))[theme]).collect();
        for (n, colour) in series.iter().enumerate() {
            let found = contrast(*colour, colours("paper")[theme]);
            assert!(found >= 3.0, "series {n}, theme {theme}, less than WCAG wants of graphics: {found:.2}");
        }
        for (eye, by) in &EYES {
            for a in 0..series.len() {
                for b in 0..a {
                    let found = distance(seen(by, series[a]), seen(by, series[b]));
                    assert!(found > 11.0, "{a} and {b} by {eye}, theme {theme}: {found:.1}");
                }
            }
        }
    }
    // A red and a brown that most eyes tell apart, and a deuteranope's do not.
    let (_, by) = EYES[2];
    let (red, brown) = (light("#a83f00"), light("#8a6100"));
    assert!(distance(red, brown) > 30.0 && distance(seen(&by, red), seen(&by, brown)) < 3.0);
}

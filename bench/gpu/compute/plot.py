"""A plot of share got against share asked, without any library."""

SIZE, EDGE = 640, 64
COLOURS = ["#1f6feb", "#d9480f", "#2b8a3e", "#862e9c", "#c2255c", "#0b7285", "#5c4813"]


def svg(points):
    """Points: subject, kernel's length in us (0: jobs), share asked, share got; both in percent."""
    side = SIZE - 2 * EDGE
    at = lambda asked, got: (EDGE + asked / 100 * side, SIZE - EDGE - got / 100 * side)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIZE + 180} {SIZE}" font-family="sans-serif" font-size="13">', f'<rect width="{SIZE + 180}" height="{SIZE}" fill="white"/>']
    for tick in range(0, 101, 25):
        (x, _), (_, y) = at(tick, 0), at(0, tick)
        parts.append(f'<path d="M{x:.1f} {SIZE - EDGE}V{EDGE}M{EDGE} {y:.1f}H{SIZE - EDGE}" stroke="#dddddd"/>')
        parts.append(f'<text x="{x:.1f}" y="{SIZE - EDGE + 20}" text-anchor="middle">{tick}</text><text x="{EDGE - 10}" y="{y + 4:.1f}" text-anchor="end">{tick}</text>')
    # Within a point of what was asked.
    band = [at(0, 0), at(99, 100), at(100, 100), at(100, 99), at(1, 0)]
    parts.append(f'<polygon points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in band)}" fill="#cfe8cf"/>')
    parts.append(f'<text x="{SIZE / 2}" y="{SIZE - 16}" text-anchor="middle">share asked, %</text>')
    parts.append(f'<text transform="translate(20 {SIZE / 2}) rotate(-90)" text-anchor="middle">share got, %</text>')
    series = {}
    for subject, us, asked, got in points:
        series.setdefault((subject, us), []).append((asked, got))
    subjects = list(dict.fromkeys(subject for subject, _ in series))
    for number, ((subject, us), found) in enumerate(sorted(series.items(), key=lambda item: (subjects.index(item[0][0]), item[0][1]))):
        colour = COLOURS[number % len(COLOURS)]
        is_round = subjects.index(subject) == 0
        mark = lambda x, y: f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="none" stroke="{colour}" stroke-width="1.5"/>' if is_round else f'<path d="M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8" stroke="{colour}" stroke-width="1.5"/>'
        parts += [mark(*at(asked, min(got, 100))) for asked, got in found]
        y = EDGE + 18 * number
        length = "" if not us else f", {us / 1000:g} ms" if us >= 1000 else f", {us:g} us"
        parts.append(mark(SIZE - EDGE + 20, y) + f'<text x="{SIZE - EDGE + 32}" y="{y + 4}">{subject}{length}</text>')
    return "\n".join(parts) + "\n</svg>\n"

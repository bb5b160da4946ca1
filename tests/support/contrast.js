// Texts whose contrast with what lies behind them is below 4.5 to 1 (WCAG AA), one line each.
const paint = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
function rgba(colour) {
  paint.clearRect(0, 0, 1, 1);
  paint.fillStyle = colour;
  paint.fillRect(0, 0, 1, 1);
  return [...paint.getImageData(0, 0, 1, 1).data];
}
function luminance(colour) {
  const linear = colour.slice(0, 3).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
}
function behind(element) {
  for (; element; element = element.parentElement) {
    const colour = rgba(getComputedStyle(element).backgroundColor);
    if (colour[3] > 250) return colour;
  }
  return [255, 255, 255, 255];
}
const weak = [];
for (const element of document.querySelectorAll('body *:not(svg *)')) {
  const speaks = [...element.childNodes].some(node => node.nodeType === Node.TEXT_NODE && node.textContent.trim());
  if (!speaks) continue;
  const [bright, dim] = [luminance(rgba(getComputedStyle(element).color)), luminance(behind(element))].sort((a, b) => b - a);
  const ratio = (bright + 0.05) / (dim + 0.05);
  if (ratio < 4.5) weak.push(`${element.textContent.trim().slice(0, 40)} ${ratio.toFixed(2)}`);
}
return weak;

#include "tools/table.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace hutch::tools {
namespace {

const char* Escape(Colour colour) {
  switch (colour) {
    case Colour::kBold:
      return "\x1b[1m";
    case Colour::kDim:
      return "\x1b[2m";
    case Colour::kRed:
      return "\x1b[31m";
    case Colour::kGreen:
      return "\x1b[32m";
    case Colour::kYellow:
      return "\x1b[33m";
    case Colour::kNone:
      break;
  }
  return "";
}

// Characters, not bytes: continuation bytes of UTF-8 take no column.
size_t Width(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

}  // namespace

Colours ColoursFor(int output_fd) {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  if (no_color != nullptr && *no_color != '\0') return Colours::kOff;
  if (term != nullptr && std::strcmp(term, "dumb") == 0) return Colours::kOff;
  return ::isatty(output_fd) == 1 ? Colours::kOn : Colours::kOff;
}

std::string Paint(std::string_view text, Colour colour, Colours colours) {
  if (colours == Colours::kOff || colour == Colour::kNone) return std::string(text);
  return Escape(colour) + std::string(text) + "\x1b[0m";
}

std::string Printable(std::string_view text) {
  std::string clean(text);
  for (char& c : clean)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  // C1 controls are two bytes in UTF-8, and some terminals obey them.
  for (size_t at = 0; at + 1 < clean.size(); ++at)
    if (clean[at] == '\xc2' && static_cast<unsigned char>(clean[at + 1]) < 0xa0)
      clean.replace(at, 2, "?");
  return clean;
}

std::string Table::Render(Colours colours) const {
  std::vector<std::vector<Cell>> lines;
  std::vector<Cell> titles;
  for (const Column& column : columns_) titles.emplace_back(column.title, Colour::kBold);
  lines.push_back(std::move(titles));
  for (const auto& row : rows_) {
    std::vector<Cell> clean;
    for (const Cell& cell : row) clean.emplace_back(Printable(cell.text), cell.colour);
    lines.push_back(std::move(clean));
  }
  std::vector<size_t> widths(columns_.size(), 0);
  for (const auto& line : lines)
    for (size_t i = 0; i < std::min(line.size(), widths.size()); ++i)
      widths[i] = std::max(widths[i], Width(line[i].text));
  std::string text;
  for (const auto& line : lines) {
    std::string shown;
    for (size_t i = 0; i < std::min(line.size(), widths.size()); ++i) {
      const std::string gap(widths[i] - Width(line[i].text), ' ');
      const bool right = columns_[i].align == Align::kRight;
      shown.append(i == 0 ? "" : "  ").append(right ? gap : "");
      shown.append(Paint(line[i].text, line[i].colour, colours)).append(right ? "" : gap);
    }
    shown.erase(shown.find_last_not_of(' ') + 1);
    text.append(shown).append("\n");
  }
  return text;
}

}  // namespace hutch::tools

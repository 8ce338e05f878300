// Text for a terminal: columns, colours only where they are wanted, nothing a tenant could abuse.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hutch::tools {

enum class Colour { kNone, kBold, kDim, kRed, kGreen, kYellow };
enum class Colours { kOff, kOn };

// On for a terminal, off with NO_COLOR set to anything or TERM=dumb (no-color.org).
Colours ColoursFor(int output_fd);
std::string Paint(std::string_view text, Colour colour, Colours colours);
// Control characters as '?': names and labels are other people's text and may hold escapes.
std::string Printable(std::string_view text);

enum class Align { kLeft, kRight };
struct Column {
  const char* title;
  Align align = Align::kLeft;
};
struct Cell {
  Cell(std::string t, Colour c = Colour::kNone) : text(std::move(t)), colour(c) {}  // NOLINT
  Cell(const char* t) : text(t) {}                                                  // NOLINT
  std::string text;
  Colour colour = Colour::kNone;
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // As many cells as columns; missing ones are empty.
  void Add(std::vector<Cell> row) { rows_.push_back(std::move(row)); }
  // A title line and one line a row, columns two spaces apart, no blanks at the ends of lines.
  std::string Render(Colours colours) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

}  // namespace hutch::tools

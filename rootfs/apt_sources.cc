#include "rootfs/apt_sources.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "rootfs/limits.h"

namespace hutch::rootfs {
namespace {

std::vector<std::string> Words(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : text) {
    if (c != ' ' && c != '\t' && c != '\n' && c != '\r') {
      word += c;
    } else if (!word.empty()) {
      words.push_back(std::exchange(word, {}));
    }
  }
  if (!word.empty()) words.push_back(word);
  return words;
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

// "bookworm/updates" is how security updates were called before Debian 11.
bool IsOfSuite(const std::string& name, const std::string& suite) {
  return name == suite || name == suite + "-updates" || name == suite + "-security" ||
         name == suite + "/updates";
}

// deb [options] URI SUITE COMPONENT...
std::optional<std::string> NarrowedLine(const std::string& line, const std::string& suite,
                                        const std::vector<std::string>& components) {
  const std::string_view text = Trim(std::string_view(line).substr(0, line.find('#')));
  if (!text.starts_with("deb ") && !text.starts_with("deb\t")) return std::nullopt;
  std::string_view rest = Trim(text.substr(3));
  std::string options;
  if (rest.starts_with('[')) {
    const size_t end = rest.find(']');
    if (end == std::string_view::npos) return std::nullopt;
    options = std::string(rest.substr(0, end + 1)) + " ";
    rest.remove_prefix(end + 1);
  }
  const std::vector<std::string> words = Words(rest);
  if (words.size() < 3 || !IsOfSuite(words[1], suite)) return std::nullopt;
  return "deb " + options + words[0] + " " + words[1] + " " + Join(components, " ") + "\n";
}

struct Field {
  std::string name;  // lower case
  std::string text;  // the value; lines of a long one with their line feeds
};

std::vector<Field> FieldsOf(const std::vector<std::string>& lines) {
  std::vector<Field> fields;
  for (const std::string& line : lines) {
    if (line.starts_with('#')) continue;
    if ((line.starts_with(' ') || line.starts_with('\t')) && !fields.empty()) {
      fields.back().text += "\n" + line;
      continue;
    }
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    fields.push_back({Lower(Trim(std::string_view(line).substr(0, colon))),
                      std::string(Trim(std::string_view(line).substr(colon + 1)))});
  }
  return fields;
}

std::string ValueOf(const std::vector<Field>& fields, const std::string& name) {
  for (const Field& field : fields)
    if (field.name == name) return field.text;
  return {};
}

std::optional<std::string> NarrowedStanza(const std::vector<std::string>& lines,
                                          const std::string& suite,
                                          const std::vector<std::string>& components) {
  const std::vector<Field> fields = FieldsOf(lines);
  const std::vector<std::string> types = Words(ValueOf(fields, "types"));
  if (std::find(types.begin(), types.end(), "deb") == types.end()) return std::nullopt;
  const std::string enabled = Lower(ValueOf(fields, "enabled"));
  for (const char* off : {"no", "false", "without", "off", "disable"})
    if (enabled == off) return std::nullopt;
  std::vector<std::string> suites;
  for (const std::string& name : Words(ValueOf(fields, "suites")))
    if (IsOfSuite(name, suite)) suites.push_back(name);
  if (suites.empty()) return std::nullopt;
  std::string stanza =
      "Types: deb\nSuites: " + Join(suites, " ") + "\nComponents: " + Join(components, " ") + "\n";
  for (const Field& field : fields)
    if (field.name != "types" && field.name != "suites" && field.name != "components" &&
        field.name != "enabled")
      stanza += field.name + ": " + field.text + "\n";
  return stanza + "\n";
}

}  // namespace

void AddAptSources(std::string_view text, bool is_deb822, const std::string& suite,
                   const std::vector<std::string>& components, AptSources* sources) {
  std::vector<std::string> stanza;
  const auto end_stanza = [&] {
    if (const auto narrowed = NarrowedStanza(stanza, suite, components))
      sources->stanzas += *narrowed;
    stanza.clear();
  };
  for (const std::string& line : Split(text, '\n')) {
    if (!is_deb822) {
      if (const auto narrowed = NarrowedLine(line, suite, components)) sources->lines += *narrowed;
    } else if (Trim(line).empty()) {
      end_stanza();
    } else {
      stanza.push_back(line);
    }
  }
  end_stanza();
}

Result<AptSources> HostAptSources(const std::string& etc_apt, const std::string& suite,
                                  const std::vector<std::string>& components) {
  std::vector<std::string> paths = {etc_apt + "/sources.list"};
  if (const auto names = ListDirectory(etc_apt + "/sources.list.d"))
    for (const std::string& name : *names) paths.push_back(etc_apt + "/sources.list.d/" + name);
  AptSources sources;
  for (const std::string& path : paths) {
    const bool is_deb822 = path.ends_with(".sources");
    if ((!is_deb822 && !path.ends_with(".list")) || !PathExists(path)) continue;
    ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxDocumentBytes));
    AddAptSources(text, is_deb822, suite, components, &sources);
  }
  if (!sources.empty()) return sources;
  return Error{.code = Code::kUnavailable,
               .what = "this host has no apt source of the suite " + suite + " in " + etc_apt,
               .hint =
                   "catalog images are built from the host's own Debian mirror: add a source "
                   "of that suite"};
}

}  // namespace hutch::rootfs

#include "tools/completion.h"

#include <cstdlib>
#include <optional>

#include "base/text.h"

namespace hutch::tools {
namespace {

using oci::Json;

constexpr int kSilenceLimitMs = 1000;

// Splits COMP_LINE by itself: bash would cut "python:latest" at its colon.
constexpr const char* kBash = R"(# bash completion of hutch
_hutch() {
  local line=${COMP_LINE:0:COMP_POINT} words word found prefix=""
  read -r -a words <<<"$line"
  [[ $line == *[[:space:]] ]] && words+=("")
  word=${words[-1]}
  [[ $word == *:* && $COMP_WORDBREAKS == *:* ]] && prefix=${word%"${word##*:}"}
  COMPREPLY=()
  while IFS= read -r found; do
    [[ $found == "$word"* ]] && COMPREPLY+=("${found#"$prefix"}")
  done < <("${words[0]}" __complete "${words[@]:1}" 2>/dev/null)
}
complete -o default -F _hutch hutch
)";

constexpr const char* kZsh = R"(#compdef hutch
# zsh completion of hutch
_hutch() {
  local -a found
  found=("${(@f)$(hutch __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ -n ${found[1]} ]]; then
    compadd -- "${found[@]}"
  else
    _files
  fi
}
if [[ ${funcstack[1]} == _hutch ]]; then
  _hutch "$@"
else
  compdef _hutch hutch
fi
)";

constexpr const char* kFish = R"(# fish completion of hutch
function __hutch_complete
    set -l words (commandline -opc)
    set -e words[1]
    set -l current (commandline -ct)
    hutch __complete $words "$current" 2>/dev/null
end
complete -c hutch -a '(__hutch_complete)'
)";

struct Shell {
  const char* name;
  const char* script;
};
constexpr Shell kShells[] = {{"bash", kBash}, {"zsh", kZsh}, {"fish", kFish}};

const CommandRow* FindRow(std::span<const CommandRow> rows, const std::string& name) {
  for (const CommandRow& row : rows)
    if (name == row.name) return &row;
  return nullptr;
}

// The row of AllOptions() that a word names, among those a command takes.
const OptionRow* FindOption(const std::string& word, uint64_t groups) {
  for (const OptionRow& row : AllOptions()) {
    if ((row.groups & groups) == 0) continue;
    for (const std::string& flag : Split(row.flags, ','))
      if (flag == word) return &row;
  }
  return nullptr;
}

// Where the words before the last one lead.
struct Place {
  const CommandRow* row = nullptr;
  size_t positionals = 0;  // already given
  std::string last;        // of them
  bool value_expected = false;
  const OptionRow* value_of = nullptr;  // the option that expects it
  bool behind_separator = false;
};

Place Walk(std::span<const std::string> words) {
  Place place;
  for (const std::string& word : words) {
    const uint64_t groups = kGlobal | (place.row != nullptr ? place.row->groups : 0);
    const auto rows = place.row != nullptr ? place.row->children : Commands();
    if (place.value_expected) {
      place.value_expected = false;
    } else if (word == "--") {
      place.behind_separator = true;
      return place;
    } else if (word.starts_with("-")) {
      const OptionRow* option = FindOption(word, groups);
      place.value_expected = option != nullptr && *option->value != '\0';
      place.value_of = option;
    } else if (const CommandRow* row = FindRow(rows, word); row != nullptr && !rows.empty()) {
      place.row = row;
    } else {
      ++place.positionals;
      place.last = word;
    }
  }
  return place;
}

std::vector<std::string> NamesOf(Names kind, const Place& place, const NameSource& source) {
  if (kind == Names::kPresets) return {"packages"};
  if (kind != Names::kShells) return source(kind, place.last);
  std::vector<std::string> names;
  for (const Shell& shell : kShells) names.emplace_back(shell.name);
  return names;
}

std::vector<std::string> PositionalNames(const Place& place, const NameSource& source) {
  std::vector<std::string> names;
  if (place.row == nullptr || !place.row->children.empty()) {
    for (const CommandRow& row : place.row == nullptr ? Commands() : place.row->children)
      names.emplace_back(row.name);
    return names;
  }
  const auto& positionals = place.row->positionals;
  if (positionals.empty()) return names;
  const Positional& last = positionals.back();
  const bool repeats = std::holds_alternative<std::vector<std::string> Options::*>(last.field);
  if (place.positionals < positionals.size())
    return NamesOf(positionals[place.positionals].names, place, source);
  return repeats ? NamesOf(last.names, place, source) : names;
}

void AddStrings(const Json& object, const char* name, std::vector<std::string>* names) {
  const auto member = object.find(name);
  if (member == object.end()) return;
  if (member->is_string()) names->push_back(member->get<std::string>());
  if (member->is_number_unsigned()) names->push_back(member->dump());
  if (!member->is_array()) return;
  for (const Json& item : *member)
    if (item.is_string()) names->push_back(item.get<std::string>());
}

struct SourceRow {
  Names kind;
  std::string target;
  const char* list;  // "" when the names are at the top
  std::vector<const char*> members;
  const char* ending = "";
};

std::vector<std::string> AskDaemon(Client& client, Names kind, const std::string& before) {
  const std::string sandbox = "/v1/sandboxes/" + EncodeSegment(before);
  const SourceRow rows[] = {
      {Names::kSandboxes, "/v1/sandboxes?state=running", "sandboxes", {"name", "id"}},
      {Names::kImages, "/v1/images", "images", {"references"}},
      {Names::kCatalog, "/v1/info", "", {"catalog"}},
      {Names::kTemplates, "/v1/templates", "templates", {"name"}},
      {Names::kNetworks, "/v1/networks", "networks", {"name"}},
      {Names::kPools, "/v1/pools", "pools", {"name"}},
      {Names::kVolumes, "/v1/volumes", "volumes", {"name"}},
      {Names::kProcesses,
       "/v1/sandboxes/" + EncodeSegment(before) + "/processes",
       "processes",
       {"id"}},
      {Names::kProcesses, sandbox + "/processes", "processes", {"id"}},
      {Names::kForwarded, sandbox + "/ports", "ports", {"port"}},
      {Names::kListening, sandbox + "/ports", "listening", {"port"}},
      {Names::kPlaces, "/v1/sandboxes?state=running", "sandboxes", {"name", "id"}, ":/"},
  };
  std::vector<std::string> names;
  for (const SourceRow& row : rows) {
    if (row.kind != kind) continue;
    const auto reply = client.Get(row.target);
    if (!reply || !reply->is_object()) return names;
    const Json list = *row.list == '\0' ? Json::array({*reply}) : reply->value(row.list, Json());
    for (const Json& item : list)
      for (const char* member : row.members)
        if (item.is_object()) AddStrings(item, member, &names);
    for (std::string& name : names) name += row.ending;
  }
  return names;
}

Result<Endpoint> EndpointIn(std::span<const std::string> words) {
  Options options;
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i] == "--socket") options.socket = words[i + 1];
    if (words[i] == "--host") options.host = words[i + 1];
    if (words[i] == "--token-file") options.token_file = words[i + 1];
  }
  FillEndpoint(&options);
  return EndpointOf(options);
}

}  // namespace

std::vector<std::string> Complete(std::span<const std::string> words, const NameSource& source) {
  std::vector<std::string> found;
  if (words.empty()) return found;
  const Place place = Walk(words.first(words.size() - 1));
  const bool template_expected = place.value_expected && place.value_of != nullptr &&
                                 std::string_view(place.value_of->flags) == "--template";
  if (place.behind_separator || (place.value_expected && !template_expected))
    return found;  // the shell's own: files
  const std::string& current = words.back();
  std::vector<std::string> candidates;
  if (template_expected) {
    candidates = source(Names::kTemplates, "");
  } else if (current.starts_with("-")) {
    const uint64_t groups = kGlobal | (place.row != nullptr ? place.row->groups : 0);
    candidates.emplace_back("--help");
    for (const OptionRow& row : AllOptions())
      if ((row.groups & groups) != 0) candidates.push_back(Split(row.flags, ',').back());
  } else {
    candidates = PositionalNames(place, source);
  }
  for (std::string& candidate : candidates)
    if (candidate.starts_with(current)) found.push_back(Printable(candidate));
  return found;
}

void PrintCompletions(std::span<const std::string> words) {
  Result<Endpoint> endpoint = EndpointIn(words);
  if (!endpoint) return;  // the command itself will say it
  Client client(std::move(*endpoint));
  client.set_silence_limit_ms(kSilenceLimitMs);
  std::string text;
  for (const std::string& found : Complete(words, [&](Names kind, const std::string&before) {
         return AskDaemon(client, kind, before);
       }))
    text += found + "\n";
  IgnoreError(Print(text), "a shell that no longer listens needs no candidates");
}

const char* CompletionScript(const std::string& shell) {
  for (const Shell& row : kShells)
    if (shell == row.name) return row.script;
  return nullptr;
}

Result<int> RunCompletion(Context& context) {
  const char* script = CompletionScript(context.options.shell);
  if (script == nullptr)
    return Error{.code = Code::kInvalidArgument,
                 .what = "no completion for \"" + context.options.shell + "\"",
                 .hint = "bash, zsh or fish"};
  RETURN_IF_ERROR(Print(script));
  return 0;
}

}  // namespace hutch::tools

#include "tools/package_config.h"

#include <arpa/inet.h>

#include <algorithm>

#include "base/text.h"

namespace hutch::tools {
namespace {

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

std::vector<std::string> Words(std::string_view text) {
  std::vector<std::string> words;
  while (!(text = Trim(text)).empty()) {
    const size_t end = std::min(text.find_first_of(" \t\r\n"), text.size());
    words.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return words;
}

// Without the quotes around it and what follows the closing one.
std::string Unquoted(std::string_view text) {
  text = Trim(text);
  if (text.empty() || (text[0] != '"' && text[0] != '\'')) return std::string(text);
  const size_t end = text.find(text[0], 1);
  return std::string(text.substr(1, end == std::string_view::npos ? end : end - 1));
}

// One of apt's: "mirror+file:/x" is a list, "tor+http://x" a way to ask.
void TakeAptUri(std::string_view uri, ConfigUrls* found) {
  constexpr std::string_view kList = "mirror+file:";
  if (uri.starts_with(kList)) {
    uri.remove_prefix(kList.size());
    while (uri.starts_with("//")) uri.remove_prefix(1);
    found->lists.emplace_back(uri);
    return;
  }
  if (uri.starts_with("mirror+")) uri.remove_prefix(7);
  if (uri.starts_with("mirror:"))
    return found->urls.push_back("http:" + std::string(uri.substr(7)));
  found->urls.emplace_back(uri);
}

bool HasUrl(std::string_view text) { return text.find("://") != std::string_view::npos; }

// Up to a "#" outside quotes.
std::string_view WithoutComment(std::string_view line, std::string_view marks) {
  char quote = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (marks.find(c) != std::string_view::npos) {
      return line.substr(0, i);
    }
  }
  return line;
}

// All between quotes on a line that is a URL.
void TakeQuotedUrls(std::string_view line, std::vector<std::string>* urls) {
  size_t from = 0;
  while ((from = line.find_first_of("\"'", from)) != std::string_view::npos) {
    const size_t end = line.find(line[from], from + 1);
    if (end == std::string_view::npos) return;
    const std::string_view value = line.substr(from + 1, end - from - 1);
    if (HasUrl(value)) urls->emplace_back(value);
    from = end + 1;
  }
}

struct Host {
  std::string scheme, name, port;
  bool bracketed = false;
};

std::optional<Host> SplitUrl(std::string_view url) {
  const size_t colon = url.find("://");
  if (colon == std::string_view::npos) return std::nullopt;
  Host host;
  host.scheme = Lower(url.substr(0, colon));
  if (const size_t plus = host.scheme.rfind('+'); plus != std::string::npos)
    host.scheme = host.scheme.substr(plus + 1);  // "sparse+https", "git+ssh"
  url.remove_prefix(colon + 3);
  url = url.substr(0, url.find_first_of("/?#"));
  if (const size_t at = url.rfind('@'); at != std::string_view::npos) url.remove_prefix(at + 1);
  size_t end = url.find(':');
  if (url.starts_with('[')) {
    const size_t close = url.find(']');
    if (close == std::string_view::npos) return std::nullopt;
    host.bracketed = true;
    host.name = Lower(url.substr(1, close - 1));
    end = url.find(':', close);
  } else {
    host.name = Lower(url.substr(0, end));
  }
  if (end != std::string_view::npos) host.port = url.substr(end + 1);
  return host;
}

struct Scheme {
  const char* name;
  const char* port;
};
constexpr Scheme kSchemes[] = {{"https", "443"}, {"http", "80"}, {"ssh", "22"}, {"git", "9418"}};

bool IsHostText(const std::string& name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
  });
}

}  // namespace

ConfigUrls ReadAptList(std::string_view text) {
  ConfigUrls found;
  for (const std::string& line : Split(text, '\n')) {
    std::string entry(Trim(line.substr(0, line.find('#'))));
    if (!entry.starts_with("deb ") && !entry.starts_with("deb\t") && !entry.starts_with("deb-src"))
      continue;
    if (const size_t open = entry.find('['); open != std::string::npos) {
      const size_t close = entry.find(']', open);
      if (close == std::string::npos) continue;
      entry.replace(open, close - open + 1, " ");
    }
    const std::vector<std::string> words = Words(entry);
    if (words.size() >= 2) TakeAptUri(words[1], &found);
  }
  return found;
}

ConfigUrls ReadAptSources(std::string_view text) {
  ConfigUrls all, stanza;
  bool enabled = true;
  std::string field;
  const auto finish = [&] {
    if (enabled) {
      all.urls.insert(all.urls.end(), stanza.urls.begin(), stanza.urls.end());
      all.lists.insert(all.lists.end(), stanza.lists.begin(), stanza.lists.end());
    }
    stanza = {};
    enabled = true;
    field.clear();
  };
  for (const std::string& line : Split(text, '\n')) {
    if (line.starts_with('#')) continue;
    if (Trim(line).empty()) {
      finish();
      continue;
    }
    std::string value = line;
    if (line[0] != ' ' && line[0] != '\t') {
      const size_t colon = line.find(':');
      if (colon == std::string::npos) continue;
      field = Lower(Trim(line.substr(0, colon)));
      value = line.substr(colon + 1);
    }
    if (field == "enabled") enabled = Lower(Trim(value)) != "no";
    if (field == "uris")
      for (const std::string& uri : Words(value)) TakeAptUri(uri, &stanza);
  }
  finish();
  return all;
}

ConfigUrls ReadAptConf(std::string_view text) {
  ConfigUrls found;
  for (const std::string& line : Split(text, '\n')) {
    const std::string_view trimmed = Trim(line);
    if (trimmed.starts_with("//") || trimmed.starts_with('#')) continue;
    if (Lower(trimmed).find("proxy") == std::string::npos) continue;
    TakeQuotedUrls(trimmed, &found.urls);
  }
  return found;
}

ConfigUrls ReadAptMirrors(std::string_view text) {
  ConfigUrls found;
  for (const std::string& line : Split(text, '\n')) {
    const std::vector<std::string> words = Words(line.substr(0, line.find('#')));
    if (!words.empty() && HasUrl(words[0])) found.urls.push_back(words[0]);
  }
  return found;
}

ConfigUrls ReadNpmrc(std::string_view text) {
  ConfigUrls found;
  for (const std::string& line : Split(text, '\n')) {
    const std::string_view entry = Trim(line);
    const size_t equals = entry.find('=');
    if (entry.starts_with('#') || entry.starts_with(';') || equals == std::string_view::npos)
      continue;
    const std::string key(Trim(entry.substr(0, equals)));
    const bool registry = key == "registry" || key.ends_with(":registry");
    if (!registry && key != "proxy" && key != "https-proxy" && key != "http-proxy") continue;
    const std::string value = Unquoted(entry.substr(equals + 1));
    if (!HasUrl(value)) continue;
    found.urls.push_back(value);
  }
  return found;
}

ConfigUrls ReadPipConf(std::string_view text) {
  constexpr std::string_view kKeys[] = {"index-url", "extra-index-url", "find-links", "proxy"};
  ConfigUrls found;
  std::string key;
  for (const std::string& line : Split(text, '\n')) {
    const std::string_view entry = Trim(line);
    if (entry.empty() || entry[0] == '#' || entry[0] == ';') continue;
    std::string_view value = entry;
    if (entry[0] == '[') {
      key.clear();
      continue;
    }
    if (line[0] != ' ' && line[0] != '\t') {  // else it goes on with the value before it
      const size_t end = entry.find_first_of("=:");
      if (end == std::string_view::npos) continue;
      key = Lower(Trim(entry.substr(0, end)));
      std::replace(key.begin(), key.end(), '_', '-');
      value = entry.substr(end + 1);
    }
    if (std::find(std::begin(kKeys), std::end(kKeys), key) == std::end(kKeys)) continue;
    for (const std::string& word : Words(value)) {
      const bool schemeless = key == "proxy" && !HasUrl(word);
      if (!schemeless && !HasUrl(word)) continue;
      found.urls.push_back(schemeless ? "http://" + word : word);
    }
  }
  return found;
}

ConfigUrls ReadCargoConfig(std::string_view text) {
  ConfigUrls found;
  std::string table;
  for (const std::string& line : Split(text, '\n')) {
    const std::string_view entry = Trim(WithoutComment(line, "#"));
    if (entry.starts_with('[')) {
      table = entry.substr(1, entry.find(']') - 1);
      table.erase(std::remove_if(table.begin(), table.end(),
                                 [](char c) { return c == '"' || c == '\'' || c == ' '; }),
                  table.end());
      continue;
    }
    const size_t equals = entry.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string key(Trim(entry.substr(0, equals)));
    const bool about_hosts = table.starts_with("registr") || table.starts_with("source") ||
                             table == "http" || table.empty();
    if (!about_hosts) continue;
    TakeQuotedUrls(entry.substr(equals + 1), &found.urls);
    if (table == "http" && key == "proxy" && !HasUrl(entry))
      found.urls.push_back("http://" + Unquoted(entry.substr(equals + 1)));
  }
  return found;
}

std::optional<std::string> RuleOfUrl(std::string_view url) {
  const std::optional<Host> host = SplitUrl(url);
  if (!host) return std::nullopt;
  const auto scheme = std::find_if(std::begin(kSchemes), std::end(kSchemes),
                                   [&](const Scheme& row) { return host->scheme == row.name; });
  if (scheme == std::end(kSchemes)) return std::nullopt;
  const std::string port = host->port.empty() ? scheme->port : host->port;
  const auto number = ParseUint(port, 65535);
  if (!number.has_value() || *number == 0) return std::nullopt;
  struct in6_addr address {};
  if (host->bracketed) {
    if (::inet_pton(AF_INET6, host->name.c_str(), &address) != 1 || host->name == "::1")
      return std::nullopt;
    return "[" + host->name + "]/128:" + port;
  }
  if (host->name.ends_with('.') || !IsHostText(host->name)) return std::nullopt;
  if (host->name == "localhost" || host->name.ends_with(".localhost")) return std::nullopt;
  if (::inet_pton(AF_INET, host->name.c_str(), &address) != 1) return host->name + ":" + port;
  if (host->name.starts_with("127.") || host->name.starts_with("0.")) return std::nullopt;
  return host->name + "/32:" + port;
}

}  // namespace hutch::tools

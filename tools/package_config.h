// The URLs in the configuration of package managers. Pure: texts in, URLs out; what cannot be read
// is left out, since it is the managers' own to complain about.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hutch::tools {

struct ConfigUrls {
  std::vector<std::string> urls;
  std::vector<std::string> lists;  // files of apt's with more of them: mirror+file:
};

ConfigUrls ReadAptList(std::string_view text);     // sources.list(5), one-line style
ConfigUrls ReadAptSources(std::string_view text);  // the same, deb822 style
ConfigUrls ReadAptConf(std::string_view text);     // apt.conf(5): proxies
ConfigUrls ReadAptMirrors(std::string_view text);  // apt-transport-mirror(1)
ConfigUrls ReadNpmrc(std::string_view text);
ConfigUrls ReadPipConf(std::string_view text);
ConfigUrls ReadCargoConfig(std::string_view text);

// "https://user:word@host:8443/path" as a rule of an allowlist, "host:8443"; an address becomes a
// range. None for what leads to no other host (file:, cdrom:, localhost) or is no URL.
std::optional<std::string> RuleOfUrl(std::string_view url);

}  // namespace hutch::tools

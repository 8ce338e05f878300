// The host's apt sources, narrowed to what one image is built from: its suite with the suite's
// updates and security updates, its components. Other suites and other people's repositories that
// the host also uses never reach an image, so the same entry gives the same image on all hosts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hutch::rootfs {

struct AptSources {
  std::string lines;    // for a ".list" file; empty for none
  std::string stanzas;  // for a ".sources" file (deb822); empty for none
  bool empty() const { return lines.empty() && stanzas.empty(); }
};

// Adds what of one file's text is about `suite`. Mirrors, keys and other options stay as they are;
// "deb-src" and sources that are switched off are left out.
void AddAptSources(std::string_view text, bool is_deb822, const std::string& suite,
                   const std::vector<std::string>& components, AptSources* sources);

// Reads /etc/apt/sources.list and /etc/apt/sources.list.d below `etc_apt`. kUnavailable (with a
// hint) when the host has no source of the suite.
Result<AptSources> HostAptSources(const std::string& etc_apt, const std::string& suite,
                                  const std::vector<std::string>& components);

}  // namespace hutch::rootfs

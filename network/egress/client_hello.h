// The first message of TLS as far as it says where it goes (RFC 8446, 4.1.2; RFC 6066, 3). Pure.
#pragma once

#include <string>
#include <string_view>

namespace hutch::network {

struct ClientHello {
  enum class State {
    kNeedMore,
    kNotTls,     // these bytes begin something else
    kMalformed,  // TLS, but no hello that says what it must
    kWhole
  };
  State state = State::kNeedMore;
  std::string name;        // as sent; empty: none
  bool encrypted = false;  // the extension encrypted_client_hello is there
  const char* why = "";    // kMalformed
};

// Whether more bytes could still make these a record of a handshake.
bool LooksLikeTls(std::string_view bytes);

// `bytes` are all that was received so far; the hello may lie in several records.
ClientHello ReadClientHello(std::string_view bytes);

}  // namespace hutch::network

// The parameters of a Python function, from the text of its signature: which name a positional
// argument has, and what is meant where a call leaves one out.

#ifndef TOOLS_FLASHINFER_SIGNATURE_H_
#define TOOLS_FLASHINFER_SIGNATURE_H_

#include <string>
#include <string_view>
#include <vector>

namespace kvcheck {

struct Parameter {
  std::string name;
  std::string default_text;   // "-1", "'NHD'", "None"; "": it has none
  bool is_positional = true;  // false behind a "*"
  bool operator==(const Parameter&) const = default;
};

// Of "(self, q: torch.Tensor, *args, window_left: int = -1) -> torch.Tensor", as str() of
// inspect.signature writes it; "*args" and "**kwargs" are no parameters with a name. Errors: kParse
// for a text that is no signature.
std::vector<Parameter> ParseSignature(std::string_view text);

}  // namespace kvcheck

#endif  // TOOLS_FLASHINFER_SIGNATURE_H_

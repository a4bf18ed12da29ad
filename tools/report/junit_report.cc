#include "tools/report/junit_report.h"

#include <fmt/format.h>

#include <map>
#include <pugixml.hpp>
#include <sstream>

namespace kvcheck {
namespace {

// The length of the UTF-8 character at text[i], 0 when there is none that XML allows.
size_t XmlCharacterLength(const std::string& text, size_t i) {
  const auto byte = [&](size_t k) {
    return i + k < text.size() ? static_cast<unsigned char>(text[i + k]) : 0U;
  };
  const unsigned lead = byte(0);
  if (lead < 0x80) return lead >= 0x20 || lead == '\t' || lead == '\n' || lead == '\r' ? 1 : 0;
  const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc2 ? 2 : 0;
  if (length == 0 || lead > 0xf4) return 0;
  unsigned code = lead & (0x7fU >> length);
  for (size_t k = 1; k < length; ++k) {
    if ((byte(k) & 0xc0U) != 0x80U) return 0;
    code = code << 6 | (byte(k) & 0x3fU);
  }
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  const bool forbidden =
      (code >= 0xd800 && code <= 0xdfff) || code == 0xfffe || code == 0xffff || code > 0x10ffff;
  return overlong || forbidden ? 0 : length;
}

std::string XmlText(const std::string& text) {
  std::string clean;
  for (size_t i = 0; i < text.size();) {
    const size_t length = XmlCharacterLength(text, i);
    if (length == 0) {
      clean += "\xef\xbf\xbd";
      ++i;
    } else {
      clean.append(text, i, length);
      i += length;
    }
  }
  return clean;
}

void Set(pugi::xml_node node, const char* name, const std::string& value) {
  node.append_attribute(name).set_value(XmlText(value).c_str());
}

// The element that says how a test case ended; nullptr for one that is as it should be.
const char* ElementOf(Standpoint standpoint) {
  switch (standpoint) {
    case Standpoint::kPassed:
    case Standpoint::kKnownFinding:
      return nullptr;
    case Standpoint::kFailed:
      return "failure";
    case Standpoint::kIllegal:
      return "error";
    case Standpoint::kMistrusted:
    case Standpoint::kExpectedMistrusted:
    case Standpoint::kUnsupported:
      return "skipped";
  }
  return nullptr;
}

}  // namespace

std::string JunitReport(std::span<const CaseResult> results, const Summary& summary,
                        const std::string& suite, const TextOptions& options) {
  pugi::xml_document document;
  pugi::xml_node root = document.append_child("testsuites");
  pugi::xml_node node = root.append_child("testsuite");
  const int64_t skipped = summary.mistrusted + summary.expected_mistrusted + summary.unsupported;
  // An interrupted or empty run must not look like a good one.
  const int64_t run_errors = (summary.interrupted ? 1 : 0) + (summary.cases == 0 ? 1 : 0);
  for (pugi::xml_node counted : {root, node}) {
    Set(counted, "name", "kvcheck " + suite);
    Set(counted, "tests", fmt::format("{}", summary.cases + run_errors));
    Set(counted, "failures", fmt::format("{}", summary.failed));
    Set(counted, "errors", fmt::format("{}", summary.illegal + run_errors));
    Set(counted, "skipped", fmt::format("{}", skipped));
  }
  std::map<std::string, int64_t> seen;
  for (const CaseResult& result : results) {
    pugi::xml_node test = node.append_child("testcase");
    // Names are keys to most readers of JUnit files.
    std::string name = result.name.empty() && !result.verdict.case_text.empty()
                           ? result.verdict.case_text
                           : Title(result);
    if (const int64_t earlier = seen[name]++; earlier > 0)
      name += fmt::format(" ({})", earlier + 1);
    Set(test, "classname", "kvcheck." + suite);
    Set(test, "name", name);
    if (const char* element = ElementOf(StandpointOf(result, options.strict))) {
      pugi::xml_node detail = test.append_child(element);
      Set(detail, "message", Headline(result, options));
      if (std::string(element) != "skipped") {
        Set(detail, "type", std::string(Name(result.verdict.outcome)));
      }
      detail.append_child(pugi::node_pcdata).set_value(XmlText(CaseText(result, options)).c_str());
    }
  }
  const auto add_run_error = [&](const char* name, const char* message) {
    pugi::xml_node test = node.append_child("testcase");
    Set(test, "classname", "kvcheck." + suite);
    Set(test, "name", name);
    Set(test.append_child("error"), "message", message);
  };
  if (summary.interrupted)
    add_run_error("interrupted", "the run was interrupted: results are partial");
  if (summary.cases == 0) add_run_error("selection", "nothing was selected");
  std::ostringstream out;
  document.save(out, " ");
  return out.str();
}

}  // namespace kvcheck

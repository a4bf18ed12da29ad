#include "tools/report/campaign_counts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tools/report/number_text.h"
#include "tools/report/shown_text.h"

namespace kvcheck {
namespace {

constexpr size_t kProbesPerLine = 3;

}  // namespace

std::string Print(const CampaignCounts& campaign) {
  std::string text =
      fmt::format("fuzz {} on {} {}, seed {}: {}: ", campaign.kind, campaign.implementation,
                  campaign.version, campaign.seed, Plural(campaign.cases, "case"));
  const std::pair<int64_t, const char*> counts[] = {{campaign.passed, "passed"},
                                                    {campaign.failed, "failed"},
                                                    {campaign.mistrusted, "mistrusted"},
                                                    {campaign.unsupported, "unsupported"}};
  bool first = true;
  for (const auto& [count, label] : counts) {
    if (count == 0) continue;
    text += fmt::format("{}{} {}", first ? "" : ", ", count, label);
    first = false;
    if (count == campaign.failed && std::string_view(label) == "failed") {
      text += fmt::format(" in {}", Plural(std::ssize(campaign.failures), "way"));
    }
  }
  if (first) text += "none was judged";
  const std::pair<int64_t, const char*> details[] = {
      {campaign.crashed, "crashed"},
      {campaign.timed_out, "timed out"},
      {campaign.by_data, "mistrusted by their own data"}};
  first = true;
  for (const auto& [count, label] : details) {
    if (count == 0) continue;
    text += fmt::format("{}{} {}", first ? " (" : ", ", count, label);
    first = false;
  }
  if (!first) text += ")";
  text += ";";
  if (campaign.operations > 0) {
    text += fmt::format(" {} operations, {} states and", campaign.operations, campaign.states);
  }
  return text + fmt::format(" {} elements judged", campaign.elements);
}

std::string DeclinedText(const CampaignCounts& campaign) {
  std::string text;
  for (const DeclinedSteps& declined : campaign.declined) {
    text += fmt::format("{} {} {}", text.empty() ? "" : ",", declined.kind, declined.count);
  }
  return text.empty() ? "" : "operations declined by the implementation:" + text + "\n";
}

std::string LeftOpenText(const CampaignCounts& campaign) {
  std::string text;
  if (!campaign.left_open.empty()) {
    text = fmt::format("not judged, by its profile: {}", fmt::join(campaign.left_open, "; "));
  }
  if (!campaign.not_asked.empty()) {
    text += fmt::format("{}not asked, by its spaces: {}", text.empty() ? "" : ". ",
                        fmt::join(campaign.not_asked, ", "));
  }
  return text.empty() ? "" : text + "\n";
}

std::string UnprovedText(const CampaignCounts& campaign, int64_t max_print) {
  std::string text;
  int64_t left = max_print;
  for (const CampaignFinding& finding : campaign.unproved) {
    if (left-- <= 0) {
      return text + fmt::format("  ... and {} more ways (--max-print)\n",
                                std::ssize(campaign.unproved) - max_print);
    }
    const double share = static_cast<double>(finding.cases) /
                         static_cast<double>(std::max<int64_t>(1, campaign.cases));
    const std::string declined =
        finding.outcome == Outcome::kUnsupported ? fmt::format(" ({})", PercentText(share)) : "";
    text += fmt::format("  {}: {}{}, case {} the first: {}\n", Name(finding.outcome),
                        Plural(finding.cases, "case"), declined, finding.first_case,
                        NameText(finding.reason));
  }
  return text;
}

std::string ProbeTable(const CampaignCounts& campaign) {
  size_t name_width = 0;
  size_t count_width = 0;
  for (const ProbeReach& probe : campaign.probes) {
    name_width = std::max(name_width, probe.name.size());
    count_width = std::max(count_width, fmt::formatted_size("{}", probe.reached));
  }
  std::string text;
  for (size_t i = 0; i < campaign.probes.size(); ++i) {
    const ProbeReach& probe = campaign.probes[i];
    text += fmt::format("  {:<{}} {:>{}}", probe.name, name_width, probe.reached, count_width);
    if (i % kProbesPerLine == kProbesPerLine - 1 || i + 1 == campaign.probes.size()) text += "\n";
  }
  return text.empty() ? "" : "probes, and how often they were reached\n" + text;
}

}  // namespace kvcheck

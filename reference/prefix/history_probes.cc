#include "reference/prefix/history_probes.h"

namespace kvcheck {
namespace {

struct ProbeRow {
  std::string_view name;
  std::string_view description;
};

constexpr std::array<ProbeRow, kHistoryProbes> kProbes = {{
    {"hit_inside_block", "a prompt and what was kept part inside a block"},
    {"full_length_hit", "every token of a prompt hits"},
    {"hit_of_longer_prompt", "what hits was kept with a longer prompt, which is cut"},
    {"hit_after_restart", "a hit in the process after an orderly restart"},
    {"hit_after_kill", "a hit in the process after a killed one"},
    {"hit_of_disk", "a hit that comes from disk"},
    {"hit_of_codes", "a hit of rows that are stored in codes"},
    {"hit_under_window", "a hit of a prompt longer than the window"},
    {"prompt_of_other_identity", "a prompt that is kept for another identity alone is opened"},
    {"equal_block_elsewhere", "a block is written that is kept behind another prefix"},
    {"split_under_reader", "a prompt parts from one that a request holds, inside it"},
    {"eviction_while_open", "evict while requests hold hits"},
    {"pressure_while_open", "the capacity is passed while requests hold hits"},
    {"revival", "a hit of rows that nobody held, after an eviction"},
    {"prompt_kept_twice", "two requests compute and keep the same prompt"},
    {"closed_unkept", "what was written is not kept, and its prompt opened again"},
    {"fork_goes_on", "a request and its fork are both written"},
    {"trim_then_keep", "a request that was trimmed is kept"},
    {"trim_into_hit", "a request is trimmed to less than its hit"},
    {"write_full", "there is no room for a write"},
    {"capacity_of_one_request", "one request fills the whole capacity"},
    {"chunk_cuts_block", "a write ends inside a block and another one goes on"},
    {"empty_store", "open, evict, clear, save or restart while nothing is kept"},
    {"open_after_clear", "a prompt that was kept before a clear is opened"},
    {"clear_while_open", "clear while a request holds rows"},
    {"open_after_epoch", "a prompt that was kept before an epoch is opened"},
    {"epoch_while_open", "epoch while a request holds rows"},
    {"kept_across_epoch", "a request of the epoch before is closed to be kept"},
    {"killed_in_write", "the process is killed while it writes to the folder"},
    {"open_after_damage", "a prompt is opened after files were damaged"},
    {"restart_other_setup", "a restart with another block size or type"},
    {"load_after_clear", "a store saved before a clear is loaded"},
    {"load_after_epoch", "a store saved before an epoch is loaded"},
}};

}  // namespace

std::string_view Name(HistoryProbe probe) { return kProbes[static_cast<size_t>(probe)].name; }
std::string_view Description(HistoryProbe probe) {
  return kProbes[static_cast<size_t>(probe)].description;
}

}  // namespace kvcheck

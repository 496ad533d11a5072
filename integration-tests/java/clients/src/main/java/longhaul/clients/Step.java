package longhaul.clients;

/** Something that a client does with topics of its own. */
interface Step {
  void play(Stage stage) throws Exception;
}
